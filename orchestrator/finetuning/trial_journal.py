"""Journal of a sweep's ended trials, in the run's folder: what need not run again when the sweep goes on.

    trials.jsonl    first the identity of what the trials read, then an entry per completed or pruned trial

The registry has the same results and may be behind: it can be away while trials end. Entries are only added; whoever
goes on with the sweep records all of them again, which changes nothing where they are recorded already.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bert_core.errors import CheckpointError
from orchestrator.finetuning.leader import LEADER
from orchestrator.results import MetricEvent, ModelResult, TrialResult
from orchestrator.run_states import RunState
from orchestrator.storage import AppendLog, delete, join

POINTS = "points.jsonl"
"""File of the points that a search which learns from scores has proposed."""
_JOURNAL = "trials.jsonl"
_SHA_256 = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


@dataclass(frozen=True)
class EndedTrial:
    """A trial that has completed or was pruned."""

    result: TrialResult
    events: Sequence[MetricEvent] = ()
    """Measurements that it reported."""


class TrialJournal:
    """Journal of the sweep with this run folder, for one process at a time."""

    def __init__(self, run_folder: str) -> None:
        self._log = AppendLog(join(run_folder, _JOURNAL))
        self._identity: dict[str, str] | None = None
        self._trials: list[EndedTrial] = []
        entries = self._log.read()
        if entries:
            try:
                self._identity = dict(entries[0]["identity"])
                self._trials = [_trial(values) for values in entries[1:]]
            except (KeyError, TypeError, ValueError) as error:
                raise CheckpointError(
                    f"{self._log.path} is altered ({error!r}); put it back, or start a new run"
                ) from None

    @property
    def trials(self) -> Sequence[EndedTrial]:
        """Trials of earlier attempts, in the order in which they ended."""
        return self._trials

    def changes(self, identity: Mapping[str, str]) -> list[str]:
        """Describe what differs between this identity and the one that the trials in the journal have, one by one.

        The list is empty where nothing does, and for a sweep that has only begun.
        """
        if self._identity is None:
            return []
        return list(_differences(self._identity, identity))

    def begin(self, identity: Mapping[str, str]) -> None:
        """Write the identity down, unless an earlier attempt has done so."""
        assert not self.changes(identity), "trials of another identity are dropped first"
        if self._identity is None:
            self._identity = dict(identity)
            self._log.append({"identity": self._identity})

    def append(self, trial: EndedTrial) -> None:
        """Add a trial; it need not run again once this returns."""
        assert self._identity is not None, "the journal begins with the identity"
        self._log.append({"result": asdict(trial.result), "events": [event._asdict() for event in trial.events]})


def drop_trials(run_folder: str) -> TrialJournal:
    """Delete what the trials of a sweep have left in its folder, the journal last; returns an empty journal."""
    for name in (LEADER, "trials", POINTS, _JOURNAL):
        delete(join(run_folder, name))
    return TrialJournal(run_folder)


def _trial(values: Mapping[str, Any]) -> EndedTrial:
    """The trial of a journal's entry."""
    result = dict(values["result"])
    state, model = RunState(result.pop("state")), result.pop("model")
    trial = TrialResult(**result, state=state, model=ModelResult(**model) if model else None)
    return EndedTrial(trial, tuple(MetricEvent(**event) for event in values["events"]))


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Name each value that differs, with what it was and what it is."""
    for name in sorted({*before, *now}):
        old, new = before.get(name, "none"), now.get(name, "none")
        if old != new:
            yield _SHA_256.sub(r"\1…", f"{name}: {old} → {new}")
