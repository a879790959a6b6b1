"""Data of a sweep's trials, from their files to the leaderboard's rankings.

pytest tests/orchestrator/kinds/test_trial_data.py
"""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from orchestrator.finetuning import sweep as sweep_module
from orchestrator.kinds import resolved_inputs
from orchestrator.kinds.sweep import SweepKind
from orchestrator.registry.recorder import Recorder
from orchestrator.results import SweepResult
from orchestrator.settings import Settings
from orchestrator.specs import SweepSpec
from orchestrator.specs.loading import spec_values
from tests.orchestrator.kinds.contexts import Notebook, context_of
from tests.orchestrator.kinds.samples import TRIALS
from tests.orchestrator.small_specs import SWEEP


def carry_out(settings: Settings, recorder: Recorder) -> str:
    """Record a sweep of two trials on the files as they are now; returns its id."""
    spec = SweepSpec.model_validate(SWEEP)
    run = recorder.start(spec_values(spec), "f", metric="accuracy")
    context = dataclasses.replace(
        context_of(settings, Notebook()),
        run_id=run.id,
        run_folder=f"{settings.storage}/runs/{run.id}",
        recorder=recorder,
    )
    result = SweepKind().run(spec, resolved_inputs(spec, settings), context)
    recorder.complete(run.id, SweepKind().record(result, run.id, recorder))
    return run.id


def test_a_row_more_to_be_scored_on_is_another_ranking(
    settings: Settings, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_sweep(spec: SweepSpec, **arguments: Any) -> SweepResult:
        return SweepResult("own", "accuracy", TRIALS, TRIALS[1])

    monkeypatch.setattr(sweep_module, "run_sweep", run_sweep)
    carry_out(settings, recorder)
    carry_out(settings, recorder)
    board = recorder.registry.leaderboard()
    assert list(zip(board["rank"], board["n"], board["mean"], strict=True)) == [(1, 1, 0.9), (2, 1, 0.8)]
    Path("task.csv").write_text(Path("task.csv").read_text() + "a bird,a\n")
    carry_out(settings, recorder)
    board = recorder.registry.leaderboard()
    assert list(board["rank"]) == [1, 2, 1, 2]
    assert list(board["data"].iloc[:2]) != list(board["data"].iloc[2:])
    assert board["data"].notna().all()
