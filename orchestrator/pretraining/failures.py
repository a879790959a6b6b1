"""The policy for failures of a pretraining run: what ends it, what restarts it, and what a person is told.

| what happens | what follows |
| --- | --- |
| a worker raises an error of the project (`OWN_ERRORS`) | the run ends with it, as the same would happen again |
| a worker dies, or raises any other error | Ray starts all workers anew, `max_failures` times |
| workers found different checkpoints | the same: a RuntimeError (`collectives.refuse_if_unequal`) |
| the driver leaves: an error, Ctrl-C, another attempt | each worker ends with the next event that it emits |
| Ray is gone | the run ends; it can be resumed |

A run that has ended with an error, or was stopped, goes on from its last checkpoint with `orchestrator resume`.
"""

import ray.exceptions
import ray.train

from orchestrator.errors import ClusterError, OrchestratorError, RunFailedError, RunStoppedError, last_line


def stop_error() -> RunStoppedError:
    """The error by which workers learn that their driver has left."""
    return RunStoppedError("the driver has left")


def training_error(error: BaseException, run_id: str) -> OrchestratorError:
    """The error, in one line, for a `fit()` that raised."""
    if isinstance(error, ray.train.WorkerGroupError):
        first = next(iter(error.worker_failures.values()), error)
        return RunFailedError(
            f"a training worker failed: {last_line(first)}; "
            f"see orchestrator runs logs {run_id}, then orchestrator resume {run_id}"
        )
    if isinstance(error, ray.exceptions.RayError):
        return ClusterError(f"Ray could not carry out the training: {last_line(error)}")
    return RunFailedError(f"training failed: {last_line(error)}")


def queue_error(error: ray.exceptions.RayError, run_id: str) -> ClusterError:
    """Make the error for an event queue that cannot be reached any more."""
    return ClusterError(
        f"Ray lost the process that collects measurements: {last_line(error)}; go on with: orchestrator resume {run_id}"
    )
