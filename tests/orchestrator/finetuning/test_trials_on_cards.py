"""Trials on a card. Run alone: pytest tests/orchestrator/finetuning/test_trials_on_cards.py"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.finetuning.bench import Bench

pytestmark = pytest.mark.training


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tiny_tasks.classification(tmp_path), tmp_path)


@pytest.mark.parametrize(("gpus", "shares"), [(0.25, [0.25]), (1.0, []), (2.0, []), (0.0, [])])
def test_a_trials_process_keeps_to_its_share(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, gpus: float, shares: list[float]
) -> None:
    taken: list[float] = []
    monkeypatch.setattr("orchestrator.finetuning.trial.choose_device", lambda *values, **options: torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", taken.append)
    bench.job = replace(bench.job, gpus=gpus)
    assert bench.run(epochs=0.1).state == "COMPLETED"
    assert taken == shares


def test_a_trial_without_a_card_is_told_the_field_of_a_sweep(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    bench.job = replace(bench.job, gpus=1.0)
    result = bench.run(epochs=0.1)
    assert result.state == "FAILED"
    assert "execution.gpus_per_trial 0" in str(result.error)
