"""Recording of a sweep's trials: in the journal at once, in the registry by a thread of its own.

Ray Tune waits while its driver records something, and so do the trials. The journal is a local write, or one of a small
object; the registry may be away for a long time. What it misses because the driver ends meanwhile is recorded from the
journal when the sweep goes on.
"""

import logging
from collections.abc import Sequence

from orchestrator.finetuning.sweep_progress import SweepListener
from orchestrator.finetuning.trial_journal import EndedTrial, TrialJournal
from orchestrator.kinds.background_writer import BackgroundWriter
from orchestrator.kinds.base import RunContext
from orchestrator.registry.trials import trial_id
from orchestrator.results import MetricEvent, TrialResult, TrialStart
from orchestrator.run_states import RunState

logger = logging.getLogger(__name__)


class TrialRecording:
    """Records the trials of one sweep, from the driver's callbacks to journal and registry.

    Args:
        journal: begun with the identity of what the trials read.
    """

    def __init__(self, context: RunContext, journal: TrialJournal, writer: BackgroundWriter) -> None:
        self._context, self._journal, self._writer = context, journal, writer
        self._recorder, self._run_id = context.recorder, context.run_id
        self._events: dict[str, list[MetricEvent]] = {}

    def listener(self) -> SweepListener:
        """Return the callbacks for the driver."""
        return SweepListener(self.started, self.measured, self.ended, self._context.progress.status)

    def replay(self) -> None:
        """Record the journal's trials: the registry may have been away when they ended."""
        for trial in self._journal.trials:
            self._write_result(trial.result)
            self._write_events(trial.result.key, trial.events)

    def started(self, start: TrialStart) -> None:
        """Record the start of a trial; one that starts again reports its measurements again."""
        self._events[start.key] = []
        self._writer.put(lambda: self._recorder.record_trial_start(self._run_id, start))

    def measured(self, key: str, events: Sequence[MetricEvent]) -> None:
        """Record measurements of a trial."""
        self._events.setdefault(key, []).extend(events)
        self._write_events(key, events)

    def ended(self, result: TrialResult) -> None:
        """Record how a trial ended; one that failed runs again in the next attempt, and is not in the journal."""
        self._context.refuse_if_superseded()
        events = self._events.pop(result.key, [])
        if result.state != RunState.FAILED:
            self._journal.append(EndedTrial(result, events))
        self._write_result(result)
        if result.state == RunState.FAILED:
            logger.info(f"trial {result.number} failed: {result.error}")
        elif result.metrics.get("collapsed"):
            logger.info(
                f"trial {result.number} (seed {result.seed}) collapsed: it never left the majority baseline; "
                "other seeds, a longer warm-up or a lower learning rate may help"
            )

    def _write_result(self, result: TrialResult) -> None:
        self._writer.put(lambda: self._recorder.record_trials(self._run_id, [result]))

    def _write_events(self, key: str, events: Sequence[MetricEvent]) -> None:
        row = trial_id(self._run_id, key)
        self._writer.put(lambda: self._recorder.record_events(row, events))
