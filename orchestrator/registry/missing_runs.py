"""Runs that are not there: the error about one, with what a person may have meant by its name."""

from collections.abc import Collection
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING

from orchestrator.errors import NotFoundError

if TYPE_CHECKING:
    from orchestrator.registry.registry import Registry

_NAMES_LOOKED_AT = 1000
"""Newest runs whose names are compared with one that is not there."""


def missing_run(registry: "Registry", wanted: str, error: NotFoundError, tasks: Collection[str] = ()) -> NotFoundError:
    """Error about a run that is not there: it is in the trash, or the name is a model's or nearly another one.

    Args:
        error: what was said where no run's id begins so.
        tasks: names of tasks that may have been meant as well.
    """
    removed = registry.trash.called(wanted)
    if removed and removed[0].claimed_at is None:
        run_id, name = removed[0].run_id, removed[0].name
        return NotFoundError(
            f"Run {run_id} ({name}) is in the trash; to bring it back: orchestrator runs restore {run_id}"
        )
    return NotFoundError(f"{str(error).rstrip('.')}{_near_name(registry, wanted, tasks)}")


def _near_name(registry: "Registry", wanted: str, tasks: Collection[str]) -> str:
    """The end of the message: a name that is nearly the one that was given, or a model."""
    if "@" in wanted:
        with suppress(NotFoundError):
            registry.models.get(wanted)
            return f"; {wanted} is a model: `orchestrator models show {wanted}`"
    newest = registry.run_table("", limit=_NAMES_LOOKED_AT, trials=False).records
    names = {str(row["name"]).lower(): str(row["name"]) for row in reversed(newest)}
    names |= {task.lower(): task for task in tasks}
    if not names:
        return "."
    close = get_close_matches(wanted.lower(), sorted(names), n=1)
    return f"; did you mean {names[close[0]]}?" if close else ", and none is called so."
