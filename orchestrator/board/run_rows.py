"""Rows of the list of runs, as JSON can hold them: a window of a list that may be 100,000 rows long."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.cells import cell
from orchestrator.progress import duration

if TYPE_CHECKING:
    from orchestrator.registry.registry import Registry

MAX_ROWS = 500
"""Rows of one answer at most."""


@dataclass(frozen=True)
class Window:
    """The part of the list that is asked for."""

    filter: str = ""
    """Query, as `orchestrator query` takes it."""
    sort: str = "-created_at"
    offset: int = 0
    limit: int = 100
    trials: bool = False


def run_rows(registry: "Registry", window: Window) -> list[dict[str, Any]]:
    """Rows of a window, without archived runs. Raises: InputError for a query or a sort key with an error."""
    table = registry.run_table(
        window.filter,
        sort=window.sort,
        limit=min(window.limit, MAX_ROWS),
        offset=window.offset,
        trials=window.trials,
        archived=False,
    )
    return [_row(record) for record in table.records]


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
