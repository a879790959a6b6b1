"""Registries that a file's tests only read; and which tests `make test` runs on PostgreSQL too: the others run there in
`make test-long`.
"""

from collections.abc import Iterator

import pytest

from orchestrator.registry import Registry
from tests.orchestrator.registry.query_samples import fill

_FILES = {
    "test_database_errors",
    "test_merging",
    "test_registered_models",
    "test_revisions",
    "test_roll_up",
    "test_run_results",
    "test_trash",
}
_TESTS = {
    "test_a_run_starts_again_as_its_state_allows",
    "test_a_query_finds_what_plain_python_finds",
    "test_a_trial_is_one_row_from_its_start_to_its_end",
    "test_an_attempt_runs_and_ends_the_run",
    "test_an_older_attempt_ends_itself_only",
    "test_edges_outlive_their_run",
    "test_ending_twice_changes_nothing",
    "test_everything_reported_twice_is_recorded_once",
    "test_groups_hold_what_plain_python_finds",
    "test_processes_that_meet_at_an_empty_database_make_its_tables_once",
    "test_sixteen_writers_lose_nothing",
    "test_the_leaderboard_takes_seeds_together",
    "test_two_results_of_a_trial_in_one_call_are_what_they_are_in_two",
}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark these tests, where they are on PostgreSQL, as `core`."""
    is_on_postgresql = item.get_closest_marker("postgres") is not None
    if is_on_postgresql and (item.path.stem in _FILES or getattr(item, "originalname", "") in _TESTS):
        item.add_marker("core")


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def module_location(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where a file's registry can be."""
    if request.param == "sqlite":
        return str(tmp_path_factory.mktemp("query") / "registry.sqlite")
    return str(request.getfixturevalue("postgres_module_location"))


@pytest.fixture(scope="module")
def filled(module_location: str) -> Iterator[Registry]:
    """The sample runs."""
    with Registry(module_location) as registry:
        fill(registry)
        yield registry
