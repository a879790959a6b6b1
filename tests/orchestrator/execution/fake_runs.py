"""Runs that a comparison asks for, noted and not carried out."""

from collections.abc import Sequence

import pytest

from orchestrator.execution import verify_resume as module
from orchestrator.execution.verify_resume import ChildRuns, Outcome
from orchestrator.specs import Spec

SAME = {"batches": "a" * 64, "weights": "b" * 64, "optimizer": "c" * 64}


class FakeRuns:
    """Runs that are noted, and their outcomes by name; SAME where nothing else is said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.specs: dict[str, Spec] = {}
        self.hold_after: int | None = None
        self.overrides: dict[str, tuple[str, ...]] = {}
        self.outcomes: dict[str, Outcome] = {}
        monkeypatch.setattr(ChildRuns, "run", lambda runs, name, spec: self.note(name, spec))
        monkeypatch.setattr(ChildRuns, "run_killed", self.kill)
        monkeypatch.setattr(module, "pretraining_outcome", lambda runs, name, *others: self.outcomes.get(name, SAME))
        monkeypatch.setattr(module, "task_outcome", lambda runs, run_id: self.outcomes.get(run_id, SAME))

    def note(self, name: str, spec: Spec) -> str:
        self.specs[name] = spec
        return name

    def kill(
        self,
        name: str,
        spec: Spec,
        is_time: object,
        hold_after: int | None = None,
        overrides: Sequence[str] = (),
    ) -> str:
        self.hold_after = hold_after
        self.overrides[name] = tuple(overrides)
        return self.note(name, spec)
