"""Building a trial's model: what a recipe changes of the model that it starts from.

Alone: .venv/bin/pytest tests/orchestrator/finetuning/test_building.py
"""

from pathlib import Path

import pytest

from bert_core.config import BertConfig
from orchestrator.finetuning.building import build_model
from orchestrator.tasks import load_task
from tests.orchestrator.finetuning.tiny_tasks import RECIPE, classification, load_tokenizer


@pytest.mark.parametrize(
    ("dropout", "attention_dropout", "built"),
    [(None, None, (0.1, 0.1)), (0.2, None, (0.2, 0.2)), (0.2, 0.0, (0.2, 0.0)), (None, 0.0, (0.1, 0.0))],
)
def test_attention_weights_have_the_recipes_dropout_unless_it_has_one_for_them(
    tmp_path: Path, dropout: float | None, attention_dropout: float | None, built: tuple[float, float]
) -> None:
    recipe = RECIPE.model_copy(update={"dropout": dropout, "attention_dropout": attention_dropout})
    config = build_model(load_task(classification(tmp_path)), recipe, None, load_tokenizer(tmp_path)).config
    assert isinstance(config, BertConfig)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == built
