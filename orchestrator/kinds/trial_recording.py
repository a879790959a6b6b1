"""Recording of a sweep's trials: in the journal at once, in the registry by a thread of its own.

Ray Tune waits while its driver records something, and so do the trials. The journal is a local write, or one of a small
object; the registry may be away for a long time, and is told several things in one transaction. What it misses because
the driver ends meanwhile is recorded from the journal when the sweep goes on.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from orchestrator.base.metric_names import COLLAPSED
from orchestrator.base.results import MetricEvent, TrialChange, TrialEvents, TrialResult, TrialStart
from orchestrator.base.run_states import RunState
from orchestrator.finetuning.sweep_progress import SweepListener
from orchestrator.finetuning.trial_journal import EndedTrial, TrialJournal
from orchestrator.kinds.base import RunContext

GATHER_S = 0.5
"""Wait for further items before they are written together: one transaction costs more than what is in it."""
_MOST_ITEMS = 500
"""Items that are written at a time at most, so that other writers have their turn."""

Item = TypeVar("Item")
logger = logging.getLogger(__name__)
Advice = Callable[[TrialResult], str | None]
"""Function that advises on the length of a trial that learned nothing; None where it was long enough."""


class BackgroundWriter(Generic[Item]):
    """Writes items in the order in which they come, several at a time.

    The first write that fails ends it: `put` and `close` raise its error, and later items are left out.
    """

    def __init__(self, write: Callable[[Sequence[Item]], object]) -> None:
        self._write = write
        self._items: SimpleQueue[Item | None] = SimpleQueue()
        self._hurries = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="background-writer", daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Order that an item is written. Raises: what an earlier write raised."""
        self._raise_error()
        self._items.put(item)

    def close(self) -> None:
        """Wait until all items are written; a signal may interrupt this. Raises: what a write raised."""
        self._hurries.set()
        self._items.put(None)
        self._thread.join()
        self._raise_error()

    def _work(self) -> None:
        while (item := self._items.get()) is not None:
            self._hurries.wait(GATHER_S)
            items = [item, *self._waiting()]
            if self._error is None:
                try:
                    self._write(items)
                except Exception as error:
                    self._error = error

    def _waiting(self) -> Iterator[Item]:
        """Take the items that are there; the end of all stays where it is, for the next look."""
        for _ in range(_MOST_ITEMS - 1):
            try:
                item = self._items.get_nowait()
            except Empty:
                return
            if item is None:
                self._items.put(None)
                return
            yield item

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error


@contextmanager
def background_writer(
    write: Callable[[Sequence[Item]], object], given_up: threading.Event
) -> Iterator[BackgroundWriter[Item]]:
    """Yield a writer; at the end of the block all is written.

    A block that ends by an exception, an interruption for one, does not wait for a registry that is away: `given_up` is
    set, upon which a write must not be tried again.
    """
    writer = BackgroundWriter(write)
    try:
        yield writer
        writer.close()
    except BaseException:
        given_up.set()
        with suppress(Exception):  # the error on its way counts
            writer.close()
        raise


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
            on_view=progress.show,
            on_evaluation=progress.tell_pipe,
        )

    def replay(self) -> None:
        """Record those of the journal's trials whose end the registry has missed, since it was away."""
        if not self._journal.trials:
            return
        states = self._context.recorder.registry.trials.states(self._context.run_id)
        for trial in self._journal.trials:
            result = trial.result
            if states.get(result.key) != result.state:
                self._writer.put([result, TrialEvents(result.key, trial.events)])

    def started(self, start: TrialStart) -> None:
        """Record the start of a trial, which reports its measurements again where it starts again."""
        self._events[start.key] = []
        self._writer.put([start])

    def measured(self, key: str, events: Sequence[MetricEvent]) -> None:
        """Record measurements of a trial."""
        self._events.setdefault(key, []).extend(events)
        self._writer.put([TrialEvents(key, events)])

    def ended(self, result: TrialResult) -> None:
        """Record how a trial ended; a failed trial is not in the journal, so that the next attempt runs it again."""
        self._context.refuse_if_superseded()
        events = self._events.pop(result.key, [])
        if result.state != RunState.FAILED:
            self._journal.append(EndedTrial(result, events))
        self._writer.put([result])
        if result.metrics.get(COLLAPSED):
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
        context.recorder.registry.trials.record(context.run_id, list(chain.from_iterable(changes)))

    with background_writer(write, context.recorder.given_up) as writer:
        yield TrialRecording(context, journal, writer, advise)
