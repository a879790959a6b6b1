"""Fencing of attempts: an older attempt at a run that wakes up changes nothing that a newer one has written."""

from orchestrator.errors import RunStoppedError


def refuse_if_superseded(newest: int, own: int) -> None:
    """Raise RunStoppedError where the newest attempt that has written a run's file is newer than the own one."""
    if newest > own:
        raise RunStoppedError(
            f"this run was resumed elsewhere (attempt {newest}) and goes on there; "
            "this process ends and changes nothing"
        )
