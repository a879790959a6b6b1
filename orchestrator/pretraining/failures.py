"""The policy for failures of a pretraining run: what ends it, what restarts it, and what a person is told.

| what happens | what follows |
| --- | --- |
| a worker raises an error of the project (`OWN_ERRORS`) | the run ends with it, as the same would happen again |
| a worker dies, or any other error | a line says so; Ray starts all anew, `max_failures` times (a line says where) |
| the first worker cannot read a checkpoint | all raise: what a person must mend, or what restarts them |
| workers find no place, or no step ends | lines say so (`training/worker_watch.py`); it ends after `max_wait_minutes` |
| the first Ctrl-C or SIGTERM | the workers save a checkpoint and end (`training/following.py`) |
| the driver leaves: an error, a second Ctrl-C, another attempt | each worker ends with the next event that it emits |
| Ray is gone | the run ends; it can be resumed |

A run that has ended with an error, or was stopped, goes on from its last checkpoint with `orchestrator resume`.
"""

from collections.abc import Mapping
from typing import Any

import ray
import ray.exceptions
import ray.train
from ray.train import UserCallback

from orchestrator.errors import ClusterError, OrchestratorError, RunFailedError, RunStoppedError, last_line
from orchestrator.training.attempts import how_to_go_on
from orchestrator.training.event_queue import WorkerFailure

_MAX_CAUSE_LENGTH = 300
_DEATHS = {
    "its node has died": "its host was lost (no heartbeat)",
    "low on memory": "its host ran out of memory and Ray ended it",
    "process has died": "its process was killed or crashed",
    "is temporarily unavailable": "its host does not answer",
}
"""Words in Ray's report of a death, which fills a screen, and what they mean; the first that is found counts."""
_OF_OTHERS = ("peer", "gloo", "nccl", "connection reset", "connection closed")
"""Words of errors that a worker raises because another one has gone."""


class FailureReport(UserCallback):  # type: ignore[misc]
    """Callback in Ray Train's controller that tells the driver of each failure of its workers."""

    def __init__(self, event_queue: Any) -> None:
        self._event_queue = event_queue

    def after_exception(self, run_context: object, worker_exceptions: Mapping[int, BaseException]) -> None:
        """Report the failure that brought the others about."""
        rank, cause = root_failure(worker_exceptions)
        ray.get(self._event_queue.report_failure.remote(rank, cause))


def root_failure(failures: Mapping[int, BaseException]) -> tuple[int, str]:
    """Rank and cause of the failure that came first: where one worker dies, the others lose their connection to it."""
    causes = {rank: failure_cause(error) for rank, error in sorted(failures.items())}

    def comes_first(rank: int) -> tuple[bool, bool]:
        died = hasattr(failures[rank], "health_check_failure")
        return not died, any(word in causes[rank].lower() for word in _OF_OTHERS)

    rank = min(causes, key=comes_first)
    return rank, causes[rank]


def failure_cause(error: BaseException) -> str:
    """Cause of a worker's failure, in one line."""
    died = getattr(error, "health_check_failure", error)
    if isinstance(died, ray.exceptions.RayActorError):
        report = str(died)
        return next((meaning for words, meaning in _DEATHS.items() if words in report), last_line(died))
    return f"{type(error).__name__}: {last_line(error)}"[:_MAX_CAUSE_LENGTH]


def stop_error() -> RunStoppedError:
    """The error by which workers learn that their driver has left."""
    return RunStoppedError("the driver has left")


def training_error(error: BaseException, run_id: str, failures: tuple[WorkerFailure, ...]) -> OrchestratorError:
    """The error, in one line, for a `fit()` that raised; `failures` are those that were reported before."""
    if isinstance(error, ray.train.WorkerGroupError):
        rank, cause = root_failure(error.worker_failures)
        failure = failures[-1] if failures else WorkerFailure(rank, cause)
        return RunFailedError(
            f"{failure}; see orchestrator runs logs {run_id} --worker {failure.rank}, then {how_to_go_on(run_id)}"
        )
    if isinstance(error, ray.exceptions.RayError):
        return ClusterError(f"Ray could not carry out the training: {last_line(error)}")
    return RunFailedError(f"training failed: {last_line(error)}")


def queue_error(error: ray.exceptions.RayError, run_id: str) -> ClusterError:
    """Make the error for an event queue that cannot be reached any more."""
    return ClusterError(f"Ray lost the process that collects measurements: {last_line(error)}; {how_to_go_on(run_id)}")
