"""Orders of the list of runs, sorted once and kept while somebody scrolls: each window is cut out of a kept order.

Without this the database sorts all runs anew for each window of some rows, unless an index has the order: of 100,000
runs, 0.2 to 0.9 s in the middle of the list. Only ids are kept; what a row shows is read when it is asked for. So runs
at work show what they do now, in places that are some seconds old.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import OrchestratorError

if TYPE_CHECKING:
    from orchestrator.registry.registry import Registry

FRESH_S = 4.0
"""Age at which an order is sorted again, less than the five seconds after which the page asks for its rows again."""
_MOST_SHARE = 0.2
"""Time at most that goes into sorting one order again and again, as a part of all time."""
_NUM_LIVES = 4
"""Age, as a multiple of the one before, at which an order is too old to be shown while it is sorted again."""
MOST_ORDERS, MOST_IDS = 8, 4_000_000
"""Orders that are kept, and ids in all of them together: 50 MB."""
_IDS_PER_PART = 100


@dataclass(frozen=True)
class ListQuery:
    """Query for the runs of a list, and their order."""

    filter: str = ""
    """Query, as `orchestrator query` takes it."""
    sort: str = "-created_at"
    trials: bool = False
    archived: bool = False
    """Whether archived runs are in the list, too."""


class Order:
    """Ids of a list in order, as texts of many ids each: 13 bytes an id, a fifth of what a list of ids takes.

    Args:
        sorted_at: time at which the sorting began.
        took_s: seconds that it took.
    """

    def __init__(self, run_ids: Sequence[str], sorted_at: float, took_s: float) -> None:
        self.num_runs = len(run_ids)
        self.sorted_at = sorted_at
        self.fresh_s = max(FRESH_S, took_s / _MOST_SHARE)
        self._parts = [
            "\n".join(run_ids[begin : begin + _IDS_PER_PART]) for begin in range(0, len(run_ids), _IDS_PER_PART)
        ]

    def window(self, offset: int, limit: int) -> list[str]:
        """The ids from a place on, so many at most."""
        parts = self._parts[offset // _IDS_PER_PART : (offset + limit - 1) // _IDS_PER_PART + 1]
        return "\n".join(parts).split("\n")[offset % _IDS_PER_PART :][:limit] if parts else []


class KeptOrders:
    """Orders of a registry's lists, shared by the threads that answer: one at a time sorts, the others find it sorted.

    Args:
        now: clock, in seconds.
    """

    def __init__(self, registry: "Registry", now: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._now = now
        self._kept: dict[ListQuery, Order] = {}
        """Orders, from the one that was sorted first to the newest."""
        self._sorting = threading.Lock()

    def of(self, query: ListQuery) -> Order:
        """The order of a list, sorted now where none is kept or it is too old.

        Raises: InputError for a query or a sort key with an error.
        """
        order = self._kept_for(query, _NUM_LIVES)
        if order is None:
            with self._sorting:
                order = self._kept_for(query, _NUM_LIVES) or self._sort(query)
        return order

    def renew(self, query: ListQuery, *, is_read: bool) -> None:
        """Sort an order that is no longer fresh, unless a thread sorts already: for after an answer, not before it.

        Args:
            is_read: whether its windows are read; an order that is only likely to be read is sorted once.
        """
        if not self._sorting.acquire(blocking=False):
            return
        try:
            if query not in self._kept or (is_read and self._kept_for(query, 1) is None):
                with suppress(OrchestratorError):  # whoever has to wait for the order is told
                    self._sort(query)
        finally:
            self._sorting.release()

    def _kept_for(self, query: ListQuery, num_lives: int) -> Order | None:
        """The order that is kept, unless it is older than so many times the age at which it is sorted again."""
        order = self._kept.get(query)
        return order if order and self._now() - order.sorted_at < num_lives * order.fresh_s else None

    def _sort(self, query: ListQuery) -> Order:
        begun_at = self._now()
        run_ids = self._registry.run_ids(query.filter, sort=query.sort, trials=query.trials, archived=query.archived)
        order = Order(run_ids, begun_at, self._now() - begun_at)
        self._kept = {**{other: kept for other, kept in self._kept.items() if other != query}, query: order}
        while len(self._kept) > MOST_ORDERS or sum(kept.num_runs for kept in self._kept.values()) > MOST_IDS:
            del self._kept[next(iter(self._kept))]
        return order
