"""Recording of a sweep's trials: in the journal at once, in the registry by a thread of its own.

Ray Tune waits while its driver records something, and so do the trials. The journal is a local write, or one of a small
object; the registry may be away for a long time, and is told several things in one transaction. What it misses because
the driver ends meanwhile is recorded from the journal when the sweep goes on.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

from orchestrator.finetuning.sweep_listener import SweepListener
from orchestrator.finetuning.trial_journal import EndedTrial, TrialJournal
from orchestrator.kinds.background_writer import BackgroundWriter, background_writer
from orchestrator.kinds.base import RunContext
from orchestrator.results import MetricEvent, TrialChange, TrialEvents, TrialResult, TrialStart
from orchestrator.run_states import RunState

logger = logging.getLogger(__name__)

Advice = Callable[[TrialResult], str | None]
"""Function that advises on the length of a trial that learned nothing; None where it was long enough."""


class TrialRecording:
    """Records the trials of one sweep, from the driver's callbacks to journal and registry.

    Args:
        journal: begun with the identity of what the trials read.
        writer: writes into the registry; the changes of one item stand in one transaction.
    """

    def __init__(
        self,
        context: RunContext,
        journal: TrialJournal,
        writer: BackgroundWriter[Sequence[TrialChange]],
        advise: Advice,
    ) -> None:
        self._context, self._journal, self._writer, self._advise = context, journal, writer, advise
        self._events: dict[str, list[MetricEvent]] = {}

    def listener(self) -> SweepListener:
        """Return the callbacks for the driver."""
        progress = self._context.progress
        return SweepListener(
            on_trial_started=self.started,
            on_trial_events=self.measured,
            on_trial_result=self.ended,
            on_progress=logger.info,
            on_view=progress.show,
            on_evaluation=progress.tell_pipe,
            on_warning=logger.warning,
        )

    def replay(self) -> None:
        """Record those of the journal's trials whose end the registry has missed, since it was away."""
        if not self._journal.trials:
            return
        states = self._context.recorder.trial_states(self._context.run_id)
        for trial in self._journal.trials:
            result = trial.result
            if states.get(result.key) != result.state:
                self._writer.put([result, TrialEvents(result.key, trial.events)])

    def started(self, start: TrialStart) -> None:
        """Record the start of a trial; one that starts again reports its measurements again."""
        self._events[start.key] = []
        self._writer.put([start])

    def measured(self, key: str, events: Sequence[MetricEvent]) -> None:
        """Record measurements of a trial."""
        self._events.setdefault(key, []).extend(events)
        self._writer.put([TrialEvents(key, events)])

    def ended(self, result: TrialResult) -> None:
        """Record how a trial ended; one that failed runs again in the next attempt, and is not in the journal."""
        self._context.refuse_if_superseded()
        events = self._events.pop(result.key, [])
        if result.state != RunState.FAILED:
            self._journal.append(EndedTrial(result, events))
        self._writer.put([result])
        if result.metrics.get("collapsed"):
            short = self._advise(result)
            remedy = f"it had {short}" if short else "other seeds, a longer warm-up or a lower learning rate may help"
            logger.info(
                f"trial {result.number} (seed {result.seed}) collapsed: it never rose above the majority baseline; "
                f"{remedy}"
            )


@contextmanager
def trial_recording(
    context: RunContext, journal: TrialJournal, advise: Advice = lambda result: None
) -> Iterator[TrialRecording]:
    """Yield the recording of a sweep's trials; at the end of the block the registry knows all of them."""

    def write(changes: Sequence[Sequence[TrialChange]]) -> None:
        context.recorder.record_trials(context.run_id, list(chain.from_iterable(changes)))

    with background_writer(write, context.recorder.given_up) as writer:
        yield TrialRecording(context, journal, writer, advise)
