"""Merging: nothing is lost, nothing replaced. Alone: pytest tests/orchestrator/registry/test_merging.py"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select, update

from orchestrator.base.errors import InputError
from orchestrator.base.results import MetricEvent
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from orchestrator.registry.merging import DIGEST_TABLES, RUN_TABLES, Merged, merge_registry
from orchestrator.registry.recorder import Recorder
from orchestrator.registry.tables import (
    ALIASES,
    ALL_MODELS,
    ALL_RUNS,
    DATASETS,
    LINEAGE,
    METADATA,
    NAMES,
    OPEN_RUNS,
    OWN_MARKS,
    PARAMETERS,
    RANKED_GROUPS,
)
from tests.orchestrator.registry.samples import (
    A_TIME,
    everything,
    fill,
    fill_every_table,
    model_result,
    new_run,
    note,
    remove,
)

A_RUN, ANOTHER = "a" * 12, "b" * 12


def merge(here: Registry, there: Registry, **options: bool) -> list[Merged]:
    """Merge, and return the outcome of each thing that was not the same."""
    done = merge_registry(here._database, there.place, **options)
    return [one for one in done if one.change != "unchanged"]


def content(registry: Registry) -> dict[str, list[object]]:
    """All rows, without when and of whom it first heard."""
    cut = {"datasets": slice(0, 6), "lineage": slice(0, 3)}
    rows = {name: [row[cut.get(name, slice(None))] for row in each] for name, each in everything(registry).items()}
    return {name: sorted(each, key=repr) for name, each in rows.items()}


@pytest.fixture
def here(tmp_path: Path) -> Registry:
    return Registry(str(tmp_path / "here.sqlite"))


@pytest.fixture
def there(tmp_path: Path) -> Registry:
    return Registry(str(tmp_path / "there.sqlite"))


def test_a_run_comes_whole_and_twice_changes_nothing(registry: Registry, there: Registry) -> None:
    """Into SQLite and into PostgreSQL."""
    fill_every_table(there)
    fill(registry, ANOTHER)
    own = content(registry)
    outcome = merge(registry, there)
    assert [(one.what, one.id, one.change) for one in outcome if one.change != "conflict"] == [
        ("run", A_RUN, "new"),
        ("alias", f"{there.models.of_run(A_RUN)[0].name}@production", "new"),
    ]
    merged = content(registry)
    for name, rows in content(there).items():
        assert [row for row in rows if row not in merged[name]] == []
        assert [row for row in own[name] if row not in merged[name]] == []
    assert merge(registry, there) == []
    assert content(registry) == merged


def test_a_dry_run_tells_the_same_and_changes_nothing(here: Registry, there: Registry, tmp_path: Path) -> None:
    fill_every_table(there)
    with Registry(str(tmp_path / "not-there.sqlite"), read_only=True) as nothing:
        foretold = merge(nothing, there, dry_run=True)
    assert not (tmp_path / "not-there.sqlite").exists()
    assert foretold == merge(here, there)


def test_a_registry_is_not_merged_with_itself_by_another_path(tmp_path: Path) -> None:
    with Registry(str(tmp_path / "here.sqlite")) as registry:
        registry.open()
        (tmp_path / "linked.sqlite").hardlink_to(tmp_path / "here.sqlite")
        with pytest.raises(InputError, match="is the registry itself"):
            list(merge_registry(registry._database, str(tmp_path / "linked.sqlite")))


def test_two_runs_of_one_id_are_a_conflict_and_both_stay(here: Registry, there: Registry) -> None:
    fill(here, A_RUN)
    fill(there, A_RUN)  # at another time
    before = content(here)
    (conflict,) = merge(here, there)
    assert (conflict.id, conflict.change) == (A_RUN, "conflict")
    assert all(name in conflict.remark for name in ("runs", "attempts"))
    assert content(here) == before


def copied(here: Registry, there: Registry) -> None:
    """Bring everything from there."""
    merge(here, there, unfinished=True)


def test_what_went_on_there_is_a_conflict_that_names_the_tables(here: Registry, there: Registry) -> None:
    fill(there, A_RUN, ends=False)
    copied(here, there)
    Recorder(there).record_events(A_RUN, [MetricEvent(2**41, "train", {"loss": 1.0})])
    (conflict,) = merge(here, there)
    assert conflict.remark.endswith("series, points")


def test_a_parameter_that_differs_is_a_conflict_and_a_trials_model_comes(here: Registry, there: Registry) -> None:
    fill(there, A_RUN)
    trial = str(there.trials.table(A_RUN).values("id")[0])
    there.models.register("by-its-trial", model_result("7" * 64), trial)
    merge(here, there)
    assert [model.name for model in here.models.of_run(trial)] == ["by-its-trial"]
    with there._database.connection(writing=True) as connection:
        connection.execute(update(PARAMETERS).where(PARAMETERS.c.run_id == A_RUN).values(text="other"))
    (outcome,) = merge(here, there)
    assert (outcome.change, outcome.remark.endswith("differ in parameters")) == ("conflict", True)


def test_a_run_that_has_not_ended_stays_away_until_it_has(here: Registry, there: Registry) -> None:
    fill(there, A_RUN, ends=False)
    (left,) = merge(here, there)
    assert (left.change, "RUNNING" in left.remark) == ("unfinished", True)
    with there._database.connection(writing=True) as connection:
        connection.execute(update(ALL_RUNS).values(heartbeat_at=datetime(2020, 1, 1, tzinfo=UTC)))
    (lost,) = merge(here, there)
    assert (lost.change, "LOST" in lost.remark, "--unfinished" in lost.remark) == ("unfinished", True, True)
    there.lifecycle.finish(A_RUN, RunState.COMPLETED)
    assert [one.change for one in merge(here, there)] == ["new"]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_run_in_the_trash_here_stays_there_and_is_named(here: Registry, there: Registry, dry_run: bool) -> None:
    fill(there, A_RUN)
    copied(here, there)
    here.trash.put(A_RUN, 0)
    (left,) = merge(here, there, dry_run=dry_run)
    assert (left.id, left.change) == (A_RUN, "removed")
    here.trash.restore(A_RUN)
    assert merge(here, there) == []


def test_what_people_added_is_joined(here: Registry, there: Registry) -> None:
    fill(there, A_RUN)
    copied(here, there)
    here.annotations.tag(A_RUN, ["mine"])
    there.annotations.tag(A_RUN, ["yours"])
    note(here, A_RUN, "later", A_TIME + timedelta(days=1))
    note(there, A_RUN, "later", A_TIME)
    assert [one.change for one in merge(here, there)] == ["joined"]
    assert here.annotations.tags(A_RUN) == ["mine", "tried", "yours"]
    assert merge(here, there) == []
    assert [one.change for one in merge(there, here)] == ["joined"]
    assert content(here) == content(there)


def test_other_weights_under_a_taken_version_get_another_one(here: Registry, there: Registry) -> None:
    for registry, digest in ((here, "1" * 64), (there, "2" * 64), (there, "3" * 64)):
        registry.models.register("reviews", model_result(digest))
    foretold = merge(here, there, dry_run=True)
    model, later = merge(here, there)
    assert foretold == [model, later]
    assert (model.id, model.remark) == ("reviews@2", "model reviews@1 is reviews@2 here")
    assert {one["digest"][0]: one["version"] for one in here.models.table().records} == {"1": 1, "2": 2, "3": 3}


def test_the_number_of_a_model_that_was_removed_there_is_given_to_none_here(here: Registry, there: Registry) -> None:
    run_id = new_run(there)
    there.models.register("reviews", model_result("1" * 64), run_id)
    remove(there, run_id)
    merge(here, there)
    assert here.models.register("reviews", model_result("2" * 64)) == 2


def test_an_alias_that_means_other_weights_stays(here: Registry, there: Registry) -> None:
    for registry, digest in ((here, "1" * 64), (there, "2" * 64)):
        registry.models.register("reviews", model_result(digest))
        with registry._database.connection(writing=True) as connection:
            connection.execute(insert(ALIASES).values(name="reviews", alias="production", version=1, set_at=A_TIME))
    conflict = merge(here, there)[-1]
    assert (conflict.what, conflict.id, conflict.change) == ("alias", "reviews@production", "conflict")
    assert len(here.models.table().records) == 2


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_alias_of_a_model_that_does_not_come_is_named(here: Registry, there: Registry, dry_run: bool) -> None:
    run_id = new_run(there)
    there.lifecycle.start_attempt(run_id)
    there.models.register("reviews", model_result("2" * 64), run_id=run_id)
    there.models.set_alias("reviews@1", "production")
    run, alias = merge_registry(here._database, there.place, dry_run=dry_run)
    assert (run.change, alias.change) == ("unfinished", "conflict")


def test_data_with_the_same_fingerprint_stay_as_they_are(here: Registry, there: Registry) -> None:
    fill(there, A_RUN)
    copied(here, there)
    before = content(here)
    with there._database.connection(writing=True) as connection:
        connection.execute(update(DATASETS).values(counts={"n": 2}, path="/elsewhere"))
    assert merge(here, there) == []
    assert content(here) == before


def test_a_merge_that_breaks_off_is_done_again(here: Registry, there: Registry, tmp_path: Path) -> None:
    for run_id in (A_RUN, ANOTHER):
        fill(there, run_id, weights=run_id * 5)
    merging = merge_registry(here._database, there.place)
    next(merging)
    merging.close()
    assert here.num_runs(trials=False) == 1
    assert [one.id for one in merge(here, there) if one.what == "run"] == [ANOTHER]
    straight = Registry(str(tmp_path / "straight.sqlite"))
    merge(straight, there)
    assert content(here) == content(straight)


def test_every_table_has_a_place_in_a_merge() -> None:
    """A new table needs a rule in `merging`, unless its rows follow from others."""
    placed = {*DIGEST_TABLES, *RUN_TABLES, ALIASES, ALL_MODELS, LINEAGE, NAMES, OWN_MARKS}
    assert {table for table in METADATA.sorted_tables if table not in placed} == {OPEN_RUNS, RANKED_GROUPS}


def test_every_table_has_a_row_in_these_tests(registry: Registry) -> None:
    fill_every_table(registry)
    rows = everything(registry)
    assert [name for name in rows if not rows[name]] == []


IDS = st.sampled_from([letter * 12 for letter in "abc"])
NOTES = st.tuples(IDS, st.sampled_from(["good", "bad"]), st.integers(0, 3))
Notes = list[tuple[str, str, int]]
ADDED = st.lists(NOTES, max_size=4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry of three runs, from which others are cut."""
    path = tmp_path_factory.mktemp("whole") / "whole.sqlite"
    with Registry(str(path)) as registry:
        for letter in "abc":
            fill(registry, letter * 12, weights=letter * 64)
    return path


def part_of(whole: Path, path: Path, run_ids: set[str], notes: Notes) -> Registry:
    """A registry with some of the runs, and what somebody noted."""
    registry = Registry(str(path))
    with Registry(str(whole)) as source:
        copied(registry, source)
    for letter in "abc":
        if letter * 12 not in run_ids:
            registry.trash.put(letter * 12, 0)
            registry.lifecycle.remove(letter * 12)
    for run_id, text, days in {(run_id, text): (run_id, text, days) for run_id, text, days in notes}.values():
        if run_id in run_ids:
            note(registry, run_id, text, A_TIME + timedelta(days=days))
    return registry


@settings(max_examples=12, deadline=None)
@given(ours=st.sets(IDS), theirs=st.sets(IDS), our_notes=ADDED, their_notes=ADDED)
@pytest.mark.heavy
def test_merging_is_idempotent_and_either_way_gives_the_same(
    whole: Path, ours: set[str], theirs: set[str], our_notes: Notes, their_notes: Notes
) -> None:
    with TemporaryDirectory() as name:
        made = {
            (side, copy): part_of(whole, Path(name) / f"{side}{copy}.sqlite", runs, notes)
            for side, runs, notes in (("our", ours, our_notes), ("their", theirs, their_notes))
            for copy in (1, 2)
        }
        assert not [one for one in merge(made["our", 1], made["their", 1]) if one.change == "conflict"]
        merge(made["their", 2], made["our", 2])
        once, other = content(made["our", 1]), content(made["their", 2])
        # Their versions of weights follow the order in which they came, and removed ones were removed apart.
        models = [sorted((row[0], *row[2:-1]) for row in each.pop("all_models")) for each in (once, other)]  # type: ignore[index]
        assert models[0] == models[1]
        assert once == other
        with made["our", 1]._database.connection(writing=False) as connection:
            whole = connection.scalars(select(ALL_RUNS.c.id).where(ALL_RUNS.c.parent_id.is_(None))).all()
            assert len(whole) == len(ours | theirs)
        before = content(made["our", 1])
        assert merge(made["our", 1], made["their", 1]) == []
        assert content(made["our", 1]) == before
        for registry in made.values():
            registry.close()
