"""Changes between a checkpoint and the attempt that goes on from it: named by field, refused, or marked.

Alone: .venv/bin/pytest tests/orchestrator/training/test_drift.py
"""

from typing import Any

import pytest

from bert_core.errors import CheckpointError
from orchestrator.results import DriftEvent
from orchestrator.settings import ASKED_AT_VARIABLE
from orchestrator.training.attempts import how_to_go_on
from orchestrator.training.drift import accept_drift, check_drift

OLD, NEW = "a" * 64, "b" * 64
SAVED: dict[str, Any] = {
    "identity": {"spec": OLD, "corpus": OLD, "torch": "2.12"},
    "details": {"spec": {"steps": 10, "model": {"size": "tiny"}}, "corpus": {"a.txt": "7 bytes"}},
}


@pytest.mark.parametrize(
    ("identity", "details", "lines"),
    [
        ({"spec": OLD, "corpus": OLD, "torch": "2.12"}, {"spec": {"steps": 11}}, []),
        ({"torch": "2.13"}, {}, ["torch: 2.12 → 2.13"]),
        ({"corpus": NEW}, {"corpus": {"a.txt": "9 bytes"}}, ["corpus.a.txt: 7 bytes → 9 bytes"]),
        ({"corpus": NEW}, {"corpus": {"a.txt": "7 bytes"}}, [f"corpus: {OLD[:12]}… → {NEW[:12]}…"]),
        (
            {"spec": NEW},
            {"spec": {"steps": 10, "model": {"size": "base"}, "seed": 1}},
            ["spec.model.size: tiny → base", "spec.seed: nothing → 1"],
        ),
        ({"teacher": NEW}, {}, []),
    ],
    ids=["equal", "version", "file", "content of a file", "spec", "not recorded then"],
)
def test_what_has_changed_is_named_by_field(
    identity: dict[str, str], details: dict[str, Any], lines: list[str]
) -> None:
    assert check_drift(SAVED, identity, details) == lines


def test_a_long_list_of_changes_is_cut() -> None:
    was, now = ({"corpus": {f"{number}.txt": size for number in range(20)}} for size in ("1 bytes", "2 bytes"))
    lines = check_drift({"identity": {"corpus": OLD}, "details": was}, {"corpus": NEW}, now)
    assert (len(lines), lines[-1]) == (9, "and 12 more")


def test_a_change_is_refused_with_the_way_out_unless_it_is_allowed() -> None:
    with pytest.raises(CheckpointError, match=r"from step 5, .*: torch: 1 → 2\. Put the old state back.*--allow-drift"):
        accept_drift(["torch: 1 → 2"], 5, allowed=False)
    assert accept_drift(["torch: 1 → 2"], 5, allowed=True) == [DriftEvent(5, ("torch: 1 → 2",))]
    assert accept_drift([], 5, allowed=False) == []


@pytest.mark.parametrize(
    ("asked_at", "command"),
    [("", "orchestrator resume 7f3a"), ("http://a:8265", "orchestrator --address http://a:8265 submit --resume 7f3a")],
)
def test_a_run_is_resumed_where_it_was_asked_for(asked_at: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ASKED_AT_VARIABLE, asked_at)
    assert how_to_go_on("7f3a") == f"go on with: {command}"
