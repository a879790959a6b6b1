"""Watch of a sweep's driver over its trials: it says within seconds that none of them has a place, and what is missing;
it ends the sweep when that lasts too long. Tune waits for ever, and says nothing.
"""

from dataclasses import replace

from orchestrator.cluster.capacity import holds_a_place
from orchestrator.cluster.shortage import find_shortage
from orchestrator.finetuning.trial_room import placed_trial
from orchestrator.periodic import Shortage
from orchestrator.specs.sweep import SweepExecutionSpec
from orchestrator.training.attempts import how_to_go_on
from orchestrator.training.event_queue import WorkerPlace, WorkersStatus
from orchestrator.training.worker_watch import Expectation, WorkerWatch

_SOME_TRIAL = WorkersStatus((WorkerPlace(0, "", 0),))
_NO_TRIAL = WorkersStatus()


class TrialWatch:
    """Watch over the trials of one sweep: whether any of them runs."""

    def __init__(self, workers: WorkerWatch) -> None:
        self._workers = workers
        self._running: set[str] = set()

    def began(self, key: str) -> None:
        """Note that a trial has got a process."""
        self._running.add(key)

    def ended(self, key: str) -> None:
        """Note that a trial has ended, or has lost its process and waits for another."""
        self._running.discard(key)

    def look(self) -> None:
        """Say what trials wait for. Raises: ClusterError where they have waited too long."""
        self._workers.look(_SOME_TRIAL if self._running else _NO_TRIAL)


def watch_trials(execution: SweepExecutionSpec, run_id: str) -> TrialWatch:
    """A watch over trials on the connected Ray; the number of GPUs of a trial has been decided."""
    workers = WorkerWatch(expect_trials(execution), lambda: find_trial_shortage(execution), how_to_go_on(run_id))
    return TrialWatch(workers)


def find_trial_shortage(execution: SweepExecutionSpec) -> Shortage:
    """Compare what a trial needs with what the connected Ray's nodes have free at this moment.

    Tune is given one trial more than there is room for. It waits, which is no trouble while another one is starting.
    """
    shortage = find_shortage(placed_trial(execution))
    return replace(shortage, is_waiting=shortage.is_waiting and not holds_a_place())


def expect_trials(execution: SweepExecutionSpec) -> Expectation:
    """The expectation that some trial has a place at any time."""
    return Expectation(
        1, 60 * execution.max_wait_minutes, reports_steps=False, none_begun="no trial has found a place to run"
    )
