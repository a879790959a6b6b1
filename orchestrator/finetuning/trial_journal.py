"""Journal and leader of a sweep, in the run's folder: what need not run again when the sweep goes on.

    trials.jsonl    first the identity of what the trials read, then an entry per completed or pruned trial
    leader.json     the best trial that has ended

The registry has the same results and may be behind: it can be away while trials end. Entries are only added; a resumed
sweep records all of them again, which changes nothing where they are recorded already.

Trials read the leader before they write their weights. The driver names it once it is in the journal: a trial that
reads too early, while a better one ends, writes weights in vain, which the driver deletes; none that are wanted are
left out.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bert_core.errors import CheckpointError
from orchestrator.base.results import MetricEvent, ModelResult, TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.storage import AppendLog, delete, exists, join, read_json, write_json

POINTS = "points.jsonl"
"""File of the points that a search which learns from scores has proposed."""
_JOURNAL = "trials.jsonl"
_LEADER = "leader.json"
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
        self.trials: Sequence[EndedTrial] = ()
        """Trials of earlier attempts, in the order in which they ended."""
        entries = self._log.read()
        if entries:
            try:
                self._identity = dict(entries[0]["identity"])
                self.trials = [_trial(values) for values in entries[1:]]
            except (KeyError, TypeError, ValueError) as error:
                raise CheckpointError(
                    f"{self._log.path} is altered ({error!r}); put it back, or start a new run"
                ) from None

    def changes(self, identity: Mapping[str, str]) -> list[str]:
        """Name each value that differs from the identity of the trials in the journal, with what it was and is.

        The list is empty for a sweep that has only begun.
        """
        if self._identity is None:
            return []
        names = sorted({*self._identity, *identity})
        both = ((name, self._identity.get(name, "none"), identity.get(name, "none")) for name in names)
        return [_SHA_256.sub(r"\1…", f"{name}: {old} → {new}") for name, old, new in both if old != new]

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
    for name in (_LEADER, "trials", POINTS, _JOURNAL):
        delete(join(run_folder, name))
    return TrialJournal(run_folder)


def _trial(values: Mapping[str, Any]) -> EndedTrial:
    result = dict(values["result"])
    state, model = RunState(result.pop("state")), result.pop("model")
    trial = TrialResult(**result, state=state, model=ModelResult(**model) if model else None)
    return EndedTrial(trial, tuple(MetricEvent(**event) for event in values["events"]))


def rank(score: float, number: int) -> tuple[float, int]:
    """Key that sorts trials, the best last: by score (all scores are higher-is-better), then the earlier number."""
    return score, -number


def write_leader(run_folder: str, result: TrialResult, metric: str) -> None:
    write_json(join(run_folder, _LEADER), {"score": result.metrics[metric], "number": result.number})


def may_lead(run_folder: str, score: float, number: int) -> bool:
    """Return whether no trial that has ended is known to be better than one of this score and number."""
    path = join(run_folder, _LEADER)
    if not exists(path):
        return True
    leader = read_json(path)
    return rank(score, number) >= rank(leader["score"], leader["number"])
