"""Orders of the board's list: the windows of the database itself, sorted once for all threads, again before long.

Alone: pytest tests/orchestrator/board/test_kept_orders.py
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from orchestrator.board import kept_orders
from orchestrator.board.app import build_app
from orchestrator.board.kept_orders import FRESH_S, KeptOrders, ListQuery, Order
from orchestrator.board.run_rows import Window, num_rows, run_rows
from orchestrator.errors import InputError
from orchestrator.registry import Registry
from orchestrator.registry.queries.run_listing import RUN_COLUMNS
from orchestrator.results import MetricEvent
from tests.orchestrator.registry.queries.query_samples import SAMPLES, fill
from tests.orchestrator.registry.samples import new_run, trial_result
from tests.waiting import wait_until

FIELDS = [*RUN_COLUMNS, "host", "score", "metrics.f1", "metrics.test.f1", "params.learning_rate", "params.size"]
QUERY = ListQuery(sort="name", trials=True)


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class SlowRegistry:
    """Stands in for a registry: has three runs, counts how often they are sorted, and waits for an event to do so."""

    def __init__(self, clock: Clock | None = None, took_s: float = 0.0) -> None:
        self.may_sort = threading.Event()
        self.may_sort.set()
        self.num_sorted = 0
        self._clock, self._took_s = clock, took_s

    def run_ids(self, filter: str, *, sort: str, **_: bool) -> list[str]:
        self.num_sorted += 1
        self.may_sort.wait()
        if self._clock is not None:
            self._clock.now_s += self._took_s
        if sort == "nonsense":
            raise InputError("No run has a field 'nonsense'")
        return ["a", "b", "c"]


def orders_of(registry: Any, clock: Clock | None = None) -> KeptOrders:
    return KeptOrders(registry, clock or Clock())


@pytest.mark.parametrize("field", FIELDS)
def test_each_window_is_the_one_that_the_database_itself_would_cut_out(registry: Registry, field: str) -> None:
    """Ties and runs without the field included, and again after runs have been added, archived and removed."""
    fill(registry)
    sweep = new_run(registry, kind="sweep", name="sst2", task="sst2", metric="f1")
    for number in range(3):
        scores = {"f1": 0.5} if number else {"f1": float("nan")}
        registry.trials.record(sweep, [trial_result(f"k{number}", number=number, metrics=scores)])
    clock = Clock()
    orders = KeptOrders(registry, clock)
    for _ in range(2):
        for query in (
            ListQuery(sort=field, trials=True),
            ListQuery(sort=f"-{field}", trials=True),
            ListQuery("seed != 1", f"-{field}"),
            ListQuery("seed != 1", field, archived=True),
        ):
            total = registry.num_runs(query.filter, trials=query.trials, archived=query.archived)
            for offset in range(0, total + 1, 2):
                given_as = {"sort": query.sort, "trials": query.trials, "archived": query.archived}
                own = registry.run_table(query.filter, limit=3, offset=offset, **given_as)  # type: ignore[arg-type]
                window = Window(query, offset, 3)
                assert [row["id"] for row in run_rows(registry, orders, window)] == list(own.values("id"))
                assert num_rows(registry, orders, window) == total
        late = new_run(registry, name=SAMPLES[4]["name"], seed=2)
        registry.metrics.record(late, [MetricEvent(1, "validation", {"f1": 0.5})])
        registry.annotations.set_flag("07", "archived")
        registry.lifecycle.remove("09")
        clock.now_s += 100 * FRESH_S


@given(st.lists(st.text("0123456789abcdef", min_size=1), max_size=350), st.integers(0, 400), st.integers(1, 300))
def test_an_order_gives_the_ids_that_it_was_made_of(run_ids: list[str], offset: int, limit: int) -> None:
    assert Order(run_ids, 0.0, 0.0).window(offset, limit) == run_ids[offset : offset + limit]


def test_windows_that_are_asked_for_at_once_are_sorted_once() -> None:
    registry = SlowRegistry()
    registry.may_sort.clear()
    orders = orders_of(registry)
    begun = threading.Barrier(6)

    def ask() -> Sequence[str]:
        begun.wait()
        return orders.of(QUERY).window(1, 1)

    with ThreadPoolExecutor(5) as pool:
        answers = [pool.submit(ask) for _ in range(5)]
        begun.wait()
        wait_until(lambda: registry.num_sorted > 0, "nobody sorts")
        registry.may_sort.set()
        assert [answer.result() for answer in answers] == [["b"]] * 5
    assert registry.num_sorted == 1


def test_an_order_is_sorted_again_when_it_is_no_longer_fresh_and_shown_meanwhile() -> None:
    clock, registry = Clock(), SlowRegistry()
    orders = orders_of(registry, clock)
    first = orders.of(QUERY)
    orders.renew(QUERY, is_read=True)
    assert orders.of(QUERY) is first
    clock.now_s += FRESH_S
    assert orders.of(QUERY) is first
    orders.renew(QUERY, is_read=False)
    assert orders.of(QUERY) is first
    orders.renew(QUERY, is_read=True)
    assert orders.of(QUERY) is not first
    clock.now_s += 10 * FRESH_S
    assert registry.num_sorted == 2
    orders.of(QUERY)
    assert registry.num_sorted == 3


def test_an_order_that_is_likely_to_be_read_is_sorted_once_beforehand() -> None:
    clock, registry = Clock(), SlowRegistry()
    orders = orders_of(registry, clock)
    for _ in range(3):
        orders.renew(QUERY, is_read=False)
        clock.now_s += 10 * FRESH_S
    assert registry.num_sorted == 1


def test_an_order_that_takes_long_is_sorted_less_often() -> None:
    clock = Clock()
    registry = SlowRegistry(clock, took_s=3.0)
    orders = orders_of(registry, clock)
    first = orders.of(QUERY)
    clock.now_s += 2 * FRESH_S
    orders.renew(QUERY, is_read=True)
    assert orders.of(QUERY) is first
    clock.now_s += 2 * FRESH_S
    orders.renew(QUERY, is_read=True)
    assert orders.of(QUERY) is not first


def test_while_an_order_is_sorted_again_nobody_waits() -> None:
    clock, registry = Clock(), SlowRegistry()
    orders = orders_of(registry, clock)
    orders.of(QUERY)
    clock.now_s += FRESH_S
    registry.may_sort.clear()
    with ThreadPoolExecutor(1) as pool:
        sorting = pool.submit(orders.renew, QUERY, is_read=True)
        wait_until(lambda: registry.num_sorted == 2, "nobody sorts")
        assert orders.of(QUERY).num_runs == 3
        orders.renew(QUERY, is_read=True)
        registry.may_sort.set()
        sorting.result()
    assert registry.num_sorted == 2


def test_a_query_with_an_error_is_told_to_who_waits_for_it_alone() -> None:
    orders, wrong = orders_of(SlowRegistry()), ListQuery(sort="nonsense")
    orders.renew(wrong, is_read=True)
    for _ in range(2):
        with pytest.raises(InputError, match="nonsense"):
            orders.of(wrong)
    assert orders.of(QUERY).num_runs == 3


@pytest.mark.parametrize(("bound", "most"), [("MOST_ORDERS", 2), ("MOST_IDS", 6)])
def test_of_too_many_orders_the_oldest_go(monkeypatch: pytest.MonkeyPatch, bound: str, most: int) -> None:
    monkeypatch.setattr(kept_orders, bound, most)
    registry = SlowRegistry()
    orders = orders_of(registry)
    queries = [ListQuery(sort=sort) for sort in ("name", "state", "kind")]
    for query in queries:
        orders.of(query)
    for query in (queries[1], queries[2]):
        orders.of(query)
    assert registry.num_sorted == 3
    orders.of(queries[0])
    assert registry.num_sorted == 4


def test_a_list_that_is_larger_than_may_be_kept_is_sorted_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_orders, "MOST_IDS", 2)
    orders = orders_of(SlowRegistry())
    assert [orders.of(QUERY).window(0, 9) for _ in range(2)] == [["a", "b", "c"]] * 2


def test_a_run_that_has_begun_stands_in_the_first_window_at_once_and_in_the_others_before_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        for name in ("b", "c", "d"):
            new_run(registry, name=name)
        client = TestClient(build_app(registry), base_url="http://127.0.0.1:8100")

        def names(offset: int) -> list[str]:
            given_as: dict[str, str | int] = {"sort": "name", "limit": 2, "offset": offset}
            return [row["name"] for row in client.get("/rows", params=given_as).json()["rows"]]

        monkeypatch.setattr(kept_orders, "FRESH_S", 1e-9)
        monkeypatch.setattr(kept_orders, "_MOST_SHARE", float("inf"))
        monkeypatch.setattr(kept_orders, "_NUM_LIVES", 1e15)
        assert names(2) == ["d"]
        new_run(registry, name="a")
        assert names(0) == ["a", "b"]
        assert names(2) == ["d"]  # and is sorted again after the answer
        assert names(2) == ["c", "d"]
