"""Plans of queries: the same runs whichever way they are found, and the way that suits how many pass.

pytest tests/orchestrator/registry/queries/test_query_plans.py
"""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import event

from benchmarks.generated_registry import NUM_TRIALS, RARE_TAG, fill
from orchestrator.registry import Registry
from orchestrator.registry.queries import query_plans, run_listing, run_order
from orchestrator.registry.record_table import RecordTable

NUM_SWEEPS = 16
QUERIES = [
    "metrics.f1 > 0.8",
    "metrics.f1 > 0.5 and params.learning_rate < 3e-5",
    "not metrics.f1 > 0.8 and task = 'mrpc'",
    "metrics.f1 > 0.8 or params.size = 'base'",
    "not (metrics.loss < 0.4 or params.epochs = 3)",
    f"tag = '{RARE_TAG}'",
    f"not tag = '{RARE_TAG}' and params.dropout = 0.1",
    f"tag like '{RARE_TAG[:3]}%' or metrics.f1 = null",
    "params.recipe.learning_rate >= 2e-5 and metrics.train.loss < 1",
    "experiment = 'mrpc-0' and metrics.f1 > 0.6",
    "state in ('completed', 'lost') and metrics.f1 > 0.6",
]
SORTS = [
    "experiment",
    "state",
    "-created_at",
    "created_at",
    "-metrics.f1",
    "metrics.f1",
    "-params.learning_rate",
    "params.size",
    "task",
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry of generated sweeps."""
    with Registry(str(tmp_path_factory.mktemp("generated") / "registry.sqlite")) as registry:
        fill(registry, NUM_SWEEPS)
        yield registry


@pytest.fixture(scope="module")
def filled_server(postgres_module_location: str) -> Iterator[Registry]:
    """The same on a PostgreSQL server."""
    with Registry(postgres_module_location) as registry:
        fill(registry, NUM_SWEEPS)
        yield registry


@pytest.fixture(params=["filled", pytest.param("filled_server", marks=pytest.mark.postgres)])
def filled_anywhere(request: pytest.FixtureRequest) -> Registry:
    """A registry of generated sweeps, once per kind of database."""
    found: Registry = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def statements(filled: Registry) -> Iterator[list[str]]:
    """The SQL that the registry runs."""
    seen: list[str] = []

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        seen.append(statement)

    engine = filled._database._open()
    event.listen(engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine, "before_cursor_execute", note)


def ids(table: RecordTable) -> list[object]:
    return table.values("id")


def test_a_generated_registry_is_as_large_as_asked_for(filled: Registry) -> None:
    assert filled.num_runs() == NUM_SWEEPS * (NUM_TRIALS + 1)
    assert len(filled.models.table().records) == NUM_SWEEPS
    assert len(set(filled.run_table(trials=False).values("id"))) == NUM_SWEEPS
    sweep = filled.run_table(limit=1, sort="created_at", trials=False).records[0]["id"]
    assert filled.trials.table(sweep).values("number") == list(range(NUM_TRIALS))


@pytest.mark.parametrize("query", QUERIES)
def test_a_plan_selects_the_same_runs(filled_anywhere: Registry, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    filled, most = filled_anywhere, [0, 10, query_plans.MOST_LISTED]
    found = []
    for number in most:
        monkeypatch.setattr(query_plans, "MOST_LISTED", number)
        found += [ids(filled.run_table(query, limit=1_000)), ids(filled.run_table(query))]
        assert filled.num_runs(query) == len(found[-1])
    monkeypatch.setattr(run_listing, "plan", lambda session, condition, whole: condition)
    expected = ids(filled.run_table(query))
    assert expected
    assert all(each == expected for each in found)


@pytest.mark.parametrize("num_first", [0, 40, 1_000])
@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("query", ["", "metrics.f1 > 0.6"])
def test_pages_follow_one_another_without_a_gap(
    filled: Registry, sort: str, query: str, num_first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_order, "_FIRST_SORTED", num_first)
    whole = ids(filled.run_table(query, sort=sort))
    pages = [ids(filled.run_table(query, sort=sort, limit=30, offset=start)) for start in range(0, len(whole), 30)]
    assert [run_id for page in pages for run_id in page] == whole
    assert filled.run_table(query, sort=sort, limit=30, offset=len(whole)).records == []


@pytest.mark.parametrize(
    ("query", "is_rare"),
    [("metrics.f1 > 0.84", True), ("metrics.f1 > 0.1", False), (f"tag = '{RARE_TAG}'", True)],
)
def test_few_runs_are_listed_and_many_are_tested_one_by_one(
    filled: Registry, statements: list[str], query: str, is_rare: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_plans, "MOST_LISTED", 50)
    assert filled.run_table(query, limit=10).records
    paged = [statement for statement in statements if "ORDER BY runs.created_at" in statement]
    assert [" IN (SELECT" in statement for statement in paged] == [is_rare]


@pytest.mark.parametrize("query", ["seed = 1", "experiment = 'mrpc-0'", "state = 'completed' and seed in (0, 2)"])
def test_runs_that_their_own_columns_select_are_the_same_however_many_they_are(
    filled: Registry, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ids(filled.run_table(query))
    assert len(whole) > 10
    for most in (0, 10, 1_000):
        monkeypatch.setattr(run_listing, "_MOST_LISTED", most)
        pages = [ids(filled.run_table(query, limit=7, offset=start)) for start in range(0, len(whole), 7)]
        assert [run_id for page in pages for run_id in page] == whole


@pytest.mark.postgres
@pytest.mark.parametrize(("query", "is_rare"), [("metrics.f1 > 0.84", True), ("metrics.f1 > 0.1", False)])
def test_a_server_lists_few_runs_before_it_reads_runs(
    filled_server: Registry, query: str, is_rare: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_plans, "MOST_LISTED", 50)
    with filled_server._database.session(writing=False) as session:
        state = filled_server._state()
        (condition,) = run_listing.selecting(session, state, query, trials=True, archived=True, whole=False)
        assert ("ANY (array(" in str(condition.compile(session.connection()))) is is_rare


@pytest.mark.parametrize("ask", [Registry.num_runs, Registry.run_table])
def test_all_runs_that_pass_are_listed_at_once(
    filled: Registry, statements: list[str], ask: Callable[[Registry, str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_plans, "MOST_LISTED", 0)
    ask(filled, "metrics.f1 > 0.1")
    assert any("runs.id IN (SELECT metrics.run_id" in statement for statement in statements)


def test_a_sort_by_a_number_reads_the_index_alone(filled: Registry) -> None:
    with filled._database.session(writing=False) as session:
        plans = session.connection().exec_driver_sql(
            "EXPLAIN QUERY PLAN SELECT run_id FROM parameters WHERE leaf = 'x' AND number IS NOT NULL ORDER BY number"
        )
        assert "USING COVERING INDEX ix_parameters_leaf" in plans.all()[0][3]
