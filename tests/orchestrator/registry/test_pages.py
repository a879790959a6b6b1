"""Pages of sorted lists. Alone: pytest tests/orchestrator/registry/test_pages.py"""

from collections.abc import Iterator

import pytest

from benchmarks.generated_registry import fill
from orchestrator.base.errors import InputError
from orchestrator.registry import Registry
from orchestrator.registry.records import RecordTable

SORTS = ["state", "-created_at", "created_at", "-metrics.f1", "metrics.f1", "-params.learning_rate", "params.size"]
SORTS += ["-score", "best(metrics.f1)", "tag", "experiment"]


@pytest.fixture(scope="module")
def filled(module_location: str) -> Iterator[Registry]:
    """A registry of generated sweeps."""
    with Registry(module_location) as registry:
        fill(registry, 16)
        yield registry


def ids(table: RecordTable) -> list[object]:
    return table.values("id")


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("query", ["", "metrics.f1 > 0.6 or score is null"])
@pytest.mark.heavy
def test_pages_follow_one_another_without_a_gap(filled: Registry, sort: str, query: str) -> None:
    whole = ids(filled.run_table(query, sort=sort))
    pages = [ids(filled.run_table(query, sort=sort, limit=30, offset=start)) for start in range(0, len(whole), 30)]
    assert ids(filled.run_table(query, sort=sort, limit=0)) == []
    assert [run_id for page in pages for run_id in page] == whole
    assert filled.run_table(query, sort=sort, limit=30, offset=len(whole)).records == []
    assert filled.num_runs(query) == len(whole) > 0


@pytest.mark.parametrize("page", [{"limit": -1}, {"limit": 10**20}, {"offset": -1}, {"limit": 1, "offset": 2**63}])
def test_a_page_that_no_table_has_is_refused(registry: Registry, page: dict[str, int]) -> None:
    for read in (registry.run_table, registry.models.table):
        with pytest.raises(InputError, match="give a number from 0"):
            read(**page)  # type: ignore[operator]
