"""Agreement, sizes and speeds of two models. Run alone: pytest tests/orchestrator/distillation/test_comparison.py"""

from pathlib import Path
from typing import Any

import pytest
import torch

from bert_core.config import BertConfig
from bert_core.heads import BertForSequenceClassification
from orchestrator.distillation.comparison import compare_sizes, compare_speeds, vector_agreement
from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.trial_job import prepare_trial_features
from orchestrator.specs.network import Precision
from orchestrator.tasks import load_task
from tests.orchestrator.finetuning import tiny_tasks


def two_models(vocab_size: int) -> tuple[BertForSequenceClassification, BertForSequenceClassification]:
    small, large = (BertConfig.from_shape(layers, 128, vocab_size=vocab_size) for layers in (1, 8))
    return BertForSequenceClassification.from_config(small), BertForSequenceClassification.from_config(large)


def test_sizes_count_every_weight() -> None:
    student, teacher = two_models(100)
    layer = sum(parameter.numel() for parameter in teacher.bert.layers[0].parameters())
    sizes = compare_sizes(student, teacher)
    assert sizes["teacher.num_parameters"] - sizes["num_parameters"] == 7 * layer
    assert sizes["parameter_ratio"] == sizes["num_parameters"] / sizes["teacher.num_parameters"]


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
