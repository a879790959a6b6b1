"""Interruption of a run in its own process: where it will go on, in words, and its record where it leaves at once."""

import os
import socket
from contextlib import suppress

from orchestrator.errors import OWN_ERRORS
from orchestrator.registry.registry import Registry
from orchestrator.run_states import RunState
from orchestrator.settings import Settings


def record_left(run_id: str, settings: Settings) -> None:
    """Record a run that this process leaves without saving as STOPPED, and so the stage of a pipeline at work."""
    own = (socket.gethostname(), os.getpid())
    with suppress(*OWN_ERRORS), Registry(settings.registry) as registry:
        for record in (*registry.stages(run_id), registry.run(run_id)):
            if record.state.has_driver and (record.host, record.pid) == own:
                message = "interrupted twice, and left without saving"
                registry.lifecycle.finish(record.id, RunState.STOPPED, error=message, attempt=record.attempt)


def where_it_stopped(run_id: str, interruption: BaseException, settings: Settings) -> str:
    """Words on the place from which an interrupted run will go on, as far as that is known.

    An interruption that made a run save says at which `step`; else the run's newest checkpoint tells.
    """
    from orchestrator.training.checkpoints import Checkpoints  # torch, which a run has loaded and `stop` does not need

    step: int | None = getattr(interruption, "step", None)
    if step is not None:
        return f"stopped after step {step:,}"
    with suppress(*OWN_ERRORS, OSError), Registry(settings.registry) as registry:
        record = registry.run(run_id)
        if record.state == RunState.COMPLETED:
            return "interrupted after it had completed"
        record = next(iter(registry.stages(run_id)), record)
        if record.kind in ("sweep", "probe"):
            states = registry.trials.states(record.id).values()
            num_ended = sum(state in (RunState.COMPLETED, RunState.PRUNED) for state in states)
            stand = "1 trial has ended and stands" if num_ended == 1 else f"{num_ended} trials have ended and stand"
            return f"stopped in sweep {record.name}; {stand}"
        checkpoints = Checkpoints(record.folder(settings.storage)).newest_first()
        if checkpoints:
            return f"stopped; its newest checkpoint is of step {checkpoints[0].step:,}"
        if record.spec.get("steps") or record.spec.get("pretraining"):
            return "stopped before its first checkpoint, so it will begin anew"
    return "stopped"
