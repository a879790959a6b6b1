"""Errors of the package, as one tree; each class knows the exit status of the command line.

    OrchestratorError                   1
    ├── RunFailedError                  1   a run ended without its result
    │   └── RunStoppedError             1   somebody stopped it
    ├── InputError                      2   wrong usage, a missing or bad input file
    │   ├── SpecError                   2   a spec that cannot be carried out
    │   ├── CorpusError                 2   text that is missing, empty or broken
    │   └── TaskDataError               2   labeled data that breaks its layout
    ├── NotFoundError                   3   no such run, model or task
    │   └── SeveralRunsError            3   several runs are called so
    ├── RegistryError                   4   the SQL record cannot be opened, read or written
    │   └── RegistryUnavailableError    4   it may answer again by itself: server down, file locked
    └── ClusterError                    5   Ray cannot be reached or cannot give what was asked

`bert_core.errors.BertCoreError` stands beside it (that package knows nothing of this one) and counts as an InputError.
`OWN_ERRORS` (`orchestrator.cluster.own_errors`) are both. `StopRequested` is no error but a `KeyboardInterrupt`, which
no `except Exception` holds back.
Every message is whole in itself: it names the field, file and line or value, and what to do.
"""

import threading


class OrchestratorError(Exception):
    """The root: shown to a person as one message; `exit_status` is what the command returns."""

    exit_status = 1


class RunFailedError(OrchestratorError):
    """A run ended without its result; the reason is recorded on the run."""


class RunStoppedError(RunFailedError):
    """A run was stopped on request."""


def superseded(run_id: str) -> RunStoppedError:
    """Make the error of an attempt that a newer attempt has replaced."""
    return RunStoppedError(f"run {run_id} was superseded by another attempt; this one ends")


class InputError(OrchestratorError):
    exit_status = 2


class SpecError(InputError):
    """A spec that cannot be carried out: unknown key, wrong type, impossible combination."""


class CorpusError(InputError):
    """Text that is missing, empty or broken."""


class TaskDataError(InputError):
    """Labeled data that breaks its layout: file and line are in the message."""


class NotFoundError(OrchestratorError):
    exit_status = 3


class SeveralRunsError(NotFoundError):
    """Several runs are called so; more of the name is needed."""


class RegistryError(OrchestratorError):
    exit_status = 4


class RegistryUnavailableError(RegistryError):
    """The SQL record does not answer now and may do so later by itself: its server is down, its file locked."""


class ClusterError(OrchestratorError):
    exit_status = 5


class StopRequested(KeyboardInterrupt):
    """Somebody asked a run to stop, by `orchestrator stop`. `step` is the step that it saved, where it saved one."""

    exit_status = 1

    def __init__(self, run_id: str, step: int | None = None) -> None:
        super().__init__(run_id, step)
        self.run_id, self.step = run_id, step

    def __str__(self) -> str:
        """The command that stopped the run."""
        return f"stopped by `orchestrator stop {self.run_id}`"


class HoursReached(StopRequested):
    """A run has worked for as many hours as its spec allows.

    Args:
        run_id: run to go on with: the pipeline's, where a stage has reached its limit.
        reason: what is reached.
        again: override that gives more, a word of the command to go on with.
    """

    def __init__(self, run_id: str, reason: str, again: str, step: int | None = None) -> None:
        super().__init__(run_id, step)
        self.args = (run_id, reason, again, step)
        self.reason, self.again = reason, again

    def __str__(self) -> str:
        """Text on the limit, and how to go on."""
        return f"{self.reason}; give it more: orchestrator resume {self.run_id} {self.again}"


interruption_under_way = threading.Event()
"""Set by the first signal that asks this process to end: a request to stop that comes later is no second one."""
