"""The same runs, whichever way they are found. Alone: pytest tests/orchestrator/registry/queries/test_query_plans.py"""

from collections.abc import Iterator

import pytest

from benchmarks.generated_registry import RARE_TAG, fill
from orchestrator.registry import Registry
from orchestrator.registry.queries import query_plans, run_listing, run_order
from orchestrator.registry.record_table import RecordTable

NUM_SWEEPS = 16
QUERIES = [
    "not metrics.f1 > 0.8 and task = 'mrpc'",
    "metrics.f1 > 0.8 or params.size = 'base'",
    "not (metrics.loss < 0.4 or params.epochs = 3)",
    f"tag = '{RARE_TAG}'",
    f"not tag = '{RARE_TAG}' and params.dropout = 0.1",
    f"tag like '{RARE_TAG[:3]}%' or metrics.f1 = null",
    "params.recipe.learning_rate >= 2e-5 and metrics.train.loss < 1",
    "state in ('completed', 'lost') and metrics.f1 > 0.6",
]
SORTS = ["state", "-created_at", "created_at", "-metrics.f1", "metrics.f1", "-params.learning_rate", "params.size"]


@pytest.fixture(scope="module")
def filled(module_location: str) -> Iterator[Registry]:
    """A registry of generated sweeps."""
    with Registry(module_location) as registry:
        fill(registry, NUM_SWEEPS)
        yield registry


def ids(table: RecordTable) -> list[object]:
    return table.values("id")


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.heavy
def test_a_plan_selects_the_same_runs(filled: Registry, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for number in (0, 10, query_plans.MOST_LISTED):
        monkeypatch.setattr(query_plans, "MOST_LISTED", number)
        found += [ids(filled.run_table(query, limit=1_000)), ids(filled.run_table(query))]
        assert filled.num_runs(query) == len(found[-1])
    monkeypatch.setattr(run_listing, "plan", lambda session, condition, whole: condition)
    expected = ids(filled.run_table(query))
    assert expected
    assert all(each == expected for each in found)


@pytest.mark.parametrize("module_location", ["sqlite"], indirect=True)
@pytest.mark.parametrize("num_first", [0, 40, 1_000])
@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("query", ["", "metrics.f1 > 0.6"])
@pytest.mark.heavy
def test_pages_follow_one_another_without_a_gap(
    filled: Registry, sort: str, query: str, num_first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_order, "_FIRST_SORTED", num_first)
    whole = ids(filled.run_table(query, sort=sort))
    pages = [ids(filled.run_table(query, sort=sort, limit=30, offset=start)) for start in range(0, len(whole), 30)]
    assert [run_id for page in pages for run_id in page] == whole
    assert filled.run_table(query, sort=sort, limit=30, offset=len(whole)).records == []
