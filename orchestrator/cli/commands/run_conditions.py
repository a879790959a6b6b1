"""Options of commands that list runs, `--state`, `--kind`, `--since` and others, as one text of the query language."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.cli.ages import time_of
from orchestrator.run_states import RunState

if TYPE_CHECKING:
    from orchestrator.registry import Registry


def check_kind(kind: str | None) -> None:
    """Raise InputError for a kind that no run has."""
    if kind is None:
        return
    from orchestrator.errors import InputError
    from orchestrator.nearest import did_you_mean
    from orchestrator.specs.kinds import SPEC_KINDS

    if kind not in (*SPEC_KINDS, "trial"):
        raise InputError(f"--kind: {kind!r} is no kind of run{did_you_mean(kind, SPEC_KINDS)}")


def no_such_run(registry: "Registry", filter: str) -> str:
    """Message of a query that finds nothing: with the words that no run has, and those that there are."""
    return "; ".join(["no run is like that", *registry.unmatched(filter)])


def given_conditions(states: Sequence[RunState], task: str | None, kind: str | None, where: str | None) -> str:
    """The query for the options that were given. Raises: InputError for a `where` that is none."""
    from orchestrator.registry.query_tree import quoted

    conditions = []
    if where is not None and where.strip():
        from orchestrator.registry.filters import parse_filter

        parse_filter(where)  # by itself, so that it cannot close the parentheses that it is put into
        conditions.append(f"({where})")
    if states:
        conditions.append(f"state in ({', '.join(map(quoted, states))})")
    if task is not None:
        conditions.append(f"task = {quoted(task)}")
    if kind is not None:
        conditions.append(f"kind = {quoted(kind)}")
    return where if where is not None and conditions == [f"({where})"] else " and ".join(conditions)


def since_too(text: str, since: str | None) -> str:
    """A query, and that a run was made since then. The query stays in front: carets stand under what was typed.

    Raises: InputError for a time that is none.
    """
    time = time_of(since, "--since")
    if time is None:
        return text
    if text.strip():
        from orchestrator.registry.filters import parse_filter

        parse_filter(text)
    condition = f"created_at >= '{time.isoformat()}'"
    return f"({text}) and {condition}" if text.strip() else condition
