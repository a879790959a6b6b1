"""Journal of ended trials: read again, damaged. Alone: pytest tests/orchestrator/finetuning/test_trial_journal.py"""

import dataclasses
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from bert_core.errors import CheckpointError
from orchestrator.base.results import MetricEvent, ModelResult, TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.finetuning.trial_journal import EndedTrial, TrialJournal, drop_trials
from orchestrator.storage import names_in, write_bytes

MODEL = ModelResult("storage/model", "a" * 64, 1000, "classification")
RESULT = TrialResult("k0", 0, {"learning_rate": 1e-3}, RunState.COMPLETED, 0, 10, {"f1": 0.5}, MODEL, "rows.jsonl")
EVENTS = (MetricEvent(10, "train", {"loss": 0.1}, 0.5), MetricEvent(10, "validation", {"f1": 0.5}))
IDENTITY = {"data": "a" * 64, "torch": "2.13.0"}


@pytest.mark.parametrize("place", ["disk", "object store"])
def test_trials_are_read_again_as_they_were_written(tmp_path: Path, place: str) -> None:
    folder = str(tmp_path) if place == "disk" else f"memory://{uuid4().hex}"
    journal = TrialJournal(folder)
    journal.begin(IDENTITY)
    trials = [
        EndedTrial(RESULT, EVENTS),
        EndedTrial(dataclasses.replace(RESULT, key="k1", state=RunState.PRUNED, model=None)),
    ]
    for trial in trials:
        journal.append(trial)
    again = TrialJournal(folder)
    assert again.trials == trials
    assert again.trials[0].result.state is RunState.COMPLETED
    assert again.changes(IDENTITY) == []
    assert not drop_trials(folder).trials
    assert names_in(folder) == []


def test_what_differs_is_named_with_what_it_was(tmp_path: Path) -> None:
    TrialJournal(str(tmp_path)).begin(IDENTITY)
    changes = TrialJournal(str(tmp_path)).changes({"data": "b" * 64, "tokenizer": "c" * 64})
    assert changes == [
        "data: aaaaaaaaaaaa… → bbbbbbbbbbbb…",
        "tokenizer: none → cccccccccccc…",
        "torch: 2.13.0 → none",
    ]


def test_a_sweep_that_ended_before_its_first_trial_has_its_identity(tmp_path: Path) -> None:
    journal = TrialJournal(str(tmp_path))
    assert journal.changes(IDENTITY) == []
    journal.begin(IDENTITY)
    again = TrialJournal(str(tmp_path))
    again.begin(IDENTITY)
    again.append(EndedTrial(RESULT))
    assert len(TrialJournal(str(tmp_path)).trials) == 1


def test_a_journal_of_other_values_is_refused(tmp_path: Path) -> None:
    for text in (b'{"result": {}}\n', b'{"identity": {}}\n{"result": {"key": 1}, "events": []}\n', b"[]\n"):
        write_bytes(str(tmp_path / "trials.jsonl"), text)
        with pytest.raises(CheckpointError, match=r"trials\.jsonl is altered .*; put it back, or start a new run"):
            TrialJournal(str(tmp_path))


def test_an_entry_costs_the_same_after_many(tmp_path: Path) -> None:
    journal, path = TrialJournal(str(tmp_path)), tmp_path / "trials.jsonl"
    journal.begin(IDENTITY)
    sizes = [path.stat().st_size]
    for _ in range(500):
        journal.append(EndedTrial(RESULT, EVENTS))
        sizes.append(path.stat().st_size)
    assert len({after - before for before, after in pairwise(sizes)}) == 1
    inode = path.stat().st_ino
    journal.append(EndedTrial(RESULT, EVENTS))
    assert path.stat().st_ino == inode, "the file is added to, not written anew"
