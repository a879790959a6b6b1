"""Groups of training workers of an attempt, in the order of the steps that they began with: which hosts each had."""

from collections.abc import Iterable
from typing import Any

from orchestrator.registry.attempt_tables import AttemptRow
from orchestrator.results import WorkersEvent


def with_groups(attempt: AttemptRow, events: Iterable[WorkersEvent]) -> list[dict[str, Any]]:
    """The attempt's groups with those that have begun since; one that begins earlier than others replaces these."""
    groups: list[dict[str, Any]] = attempt.workers or []
    for event in events:
        groups = [group for group in groups if group["first_step"] < event.first_step]
        if not groups or groups[-1]["hosts"] != list(event.hosts):
            groups.append(_group(event, attempt))
    return groups


def _group(event: WorkersEvent, attempt: AttemptRow) -> dict[str, Any]:
    """Entry for one group; the machine of rank 0 where it is not the driver's own."""
    group = {"first_step": event.first_step, "hosts": list(event.hosts)}
    driver = (attempt.environment or {}).get("hostname", attempt.host)
    if event.machine is None or event.machine.get("hostname") == driver:
        return group
    return group | {"machine": dict(event.machine)}
