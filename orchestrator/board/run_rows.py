"""Rows of the list of runs, as JSON can hold them: a window of a list that may be 100,000 rows long."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.board.kept_orders import KeptOrders, ListQuery
from orchestrator.cells import cell
from orchestrator.progress import duration

if TYPE_CHECKING:
    from orchestrator.registry.registry import Registry

MAX_ROWS = 500
"""Rows of one answer at most."""


@dataclass(frozen=True)
class Window:
    """The part of a list that is asked for."""

    query: ListQuery
    offset: int = 0
    limit: int = 100


def run_rows(registry: "Registry", orders: KeptOrders, window: Window) -> list[dict[str, Any]]:
    """Rows of a window. Raises: InputError for a query or a sort key with an error.

    The first window is read as the registry is now, so that a page that is opened shows what has just begun; those
    further down are cut out of an order that may be some seconds old.
    """
    query, limit = window.query, min(window.limit, MAX_ROWS)
    if window.offset:
        table = registry.run_table_of(orders.of(query).window(window.offset, limit))
    else:
        table = registry.run_table(
            query.filter, sort=query.sort, limit=limit, trials=query.trials, archived=query.archived
        )
    return [_row(record) for record in table.records]


def num_rows(registry: "Registry", orders: KeptOrders, window: Window) -> int:
    """Number of rows of the whole list, as old as the window is. Raises: as `run_rows`."""
    query = window.query
    if window.offset:
        return orders.of(query).num_runs
    return registry.num_runs(query.filter, trials=query.trials, archived=query.archived)


def _row(record: dict[str, Any]) -> dict[str, Any]:
    """Cells that the list shows of a run, as text; `score` is that of the metric which ranks the runs of its task."""
    score = record.get(f"metrics.{record['metric']}") if record["metric"] else None
    return {
        "id": record["id"],
        "name": f"#{record['number']} of {record['name'].rpartition(' #')[0]}" if record["parent"] else record["name"],
        "kind": record["kind"],
        "state": str(record["state"]),
        "task": record["task"] or "",
        "score": "" if score is None else f"{cell(float(score))} {record['metric']}",
        "seed": "" if record["seed"] is None else str(record["seed"]),
        "took": "" if record["seconds"] is None else duration(record["seconds"]),
        "created": f"{record['created_at']:%Y-%m-%d %H:%M}",
    }
