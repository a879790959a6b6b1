"""Recording of a sweep's trials: in the journal at once, in the registry by a thread of its own.

Ray Tune waits while its driver records something, and so do the trials. The journal is a local write, or one of a small
object; the registry may be away for a long time, and is told several things in one transaction. What it misses because
the driver ends meanwhile is recorded from the journal when the sweep goes on.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from queue import SimpleQueue
from typing import TypeVar

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


@contextmanager
def background_writer(
    write: Callable[[Sequence[Item]], object], given_up: threading.Event
) -> Iterator[Callable[[Item], None]]:
    """Yield a function that orders an item to be written; at the end of the block all are, in order, several at a time.

    The first write that fails ends it: the next order, or the end of the block, raises its error, and later items are
    left out. A block that ends by an exception, an interruption for one, does not wait for a registry that is away:
    `given_up` is set, upon which a write must not be tried again.
    """
    items: SimpleQueue[Item | None] = SimpleQueue()
    hurries, errors = threading.Event(), list[Exception]()

    def work() -> None:
        taken: list[Item | None] = []
        while None not in taken:
            taken = [items.get()]
            hurries.wait(GATHER_S)
            while len(taken) < _MOST_ITEMS and not items.empty():
                taken.append(items.get())
            if not errors and (found := [item for item in taken if item is not None]):
                try:
                    write(found)
                except Exception as error:
                    errors.append(error)

    def put(item: Item) -> None:
        if errors:
            raise errors[0]
        items.put(item)

    def end() -> None:
        hurries.set()
        items.put(None)
        thread.join()  # a signal may interrupt this

    thread = threading.Thread(target=work, name="background-writer", daemon=True)
    thread.start()
    try:
        yield put
        end()
        if errors:
            raise errors[0]
    except BaseException:
        given_up.set()
        end()
        raise


@contextmanager
def trial_recording(context: RunContext, journal: TrialJournal) -> Iterator[SweepListener]:
    """Yield the callbacks for the driver of a sweep; at the end of the block the registry knows all of its trials.

    Those of the journal whose end the registry has missed, since it was away, are recorded first.
    """
    trials, run_id = context.recorder.registry.trials, context.run_id
    events_of: dict[str, list[MetricEvent]] = {}

    def write(changes: Sequence[Sequence[TrialChange]]) -> None:
        trials.record(run_id, list(chain.from_iterable(changes)))

    def on_start(start: TrialStart) -> None:
        """Forget what the trial measured when it started before: it reports its measurements again."""
        events_of[start.key] = []
        put([start])

    def on_events(key: str, events: Sequence[MetricEvent]) -> None:
        events_of.setdefault(key, []).extend(events)
        put([TrialEvents(key, events)])

    def on_result(result: TrialResult) -> None:
        """Record how a trial ended; a failed trial is not in the journal, so that the next attempt runs it again."""
        context.refuse_if_superseded()
        events = events_of.pop(result.key, [])
        if result.state != RunState.FAILED:
            journal.append(EndedTrial(result, events))
        put([result])
        if result.metrics.get(COLLAPSED):
            logger.info(
                f"trial {result.number} (seed {result.seed}) collapsed: it never rose above the majority baseline; "
                "more steps, other seeds, a longer warm-up or a lower learning rate may help"
            )

    with background_writer(write, context.recorder.given_up) as put:
        states = trials.states(run_id) if journal.trials else {}
        for trial in journal.trials:
            if states.get(trial.result.key) != trial.result.state:
                put([trial.result, TrialEvents(trial.result.key, trial.events)])
        yield SweepListener(on_start, on_events, on_result, context.progress.show)
