"""Agreement, sizes and speeds of two models. Run alone: pytest tests/orchestrator/distillation/test_comparison.py"""

from pathlib import Path
from typing import Any

import pytest
import torch

from orchestrator.distillation.comparison import compare_speeds, vector_agreement
from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.trial_job import prepare_trial_features
from orchestrator.specs.network import Precision
from orchestrator.tasks import load_task
from tests.orchestrator.finetuning import tiny_tasks


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_speeds_and_vectors_are_those_of_the_recipes_precision(
    precision: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, task = tiny_tasks.load_tokenizer(tmp_path), load_task(tiny_tasks.pairs(tmp_path, "cosine"))
    model = build_model(task, tiny_tasks.RECIPE, None, tokenizer)
    features = prepare_trial_features(task, "validation", tiny_tasks.RECIPE, tokenizer, str(tmp_path / "cache"))
    is_rounded, packed_logits = [], type(model).packed_logits

    def noted(self: Any, *arguments: Any) -> torch.Tensor:
        is_rounded.append(torch.is_autocast_enabled("cpu"))
        return packed_logits(self, *arguments)

    monkeypatch.setattr(type(model), "packed_logits", noted)
    compare_speeds(model, model, features, precision)
    assert vector_agreement(model, model, features, precision) == pytest.approx(1.0, abs=1e-4)
    assert set(is_rounded) == {precision == "bf16"}
