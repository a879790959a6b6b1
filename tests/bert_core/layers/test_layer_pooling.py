"""Input of a head from the layers, and states that were kept.

Run alone: pytest tests/bert_core/layers/test_layer_pooling.py
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.errors import ConfigError
from bert_core.heads import (
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from bert_core.layers.layer_pooling import LayerPooling
from tests.bert_core.reference import ragged_batch, scattered, small_config

KINDS = ("last", "second_to_last", "sum_last_four", "concat_last_four", "scalar_mix", "embeddings")
HEADS = (BertForSequenceClassification, BertForTokenClassification, BertForQuestionAnswering)
OUTPUTS = [torch.full((2, 3), float(10**place)) for place in range(6)]


def layer_pooling(kind: str) -> LayerPooling:
    return LayerPooling(small_config(num_hidden_layers=5, layer_pooling=kind))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("last", [1e5]), ("second_to_last", [1e4]), ("sum_last_four", [111_100.0]), ("embeddings", [1.0])],
)
def test_single_vectors(kind: str, expected: list[float]) -> None:
    chosen = layer_pooling(kind)
    assert chosen(chosen.select(iter(OUTPUTS))).tolist() == [expected * 3] * 2


def test_concatenation_has_the_layers_in_order() -> None:
    chosen = layer_pooling("concat_last_four")
    row = chosen(chosen.select(iter(OUTPUTS)))[0]
    assert row.tolist() == [1e2] * 3 + [1e3] * 3 + [1e4] * 3 + [1e5] * 3


def test_scalar_mix_weighs_every_layer_and_scales() -> None:
    chosen = layer_pooling("scalar_mix")
    with torch.no_grad():
        chosen.weights.copy_(torch.tensor([0.0, 0.0, 3.0, 0.0, 0.0, 1.0]))
        chosen.scale.fill_(2.0)
    shares = chosen.weights.softmax(0).tolist()
    expected = 2 * sum(share * 10**place for place, share in enumerate(shares))
    assert chosen(chosen.select(iter(OUTPUTS)))[1, 2].item() == pytest.approx(expected)


def test_four_layers_are_needed_for_the_last_four() -> None:
    with pytest.raises(ConfigError, match="layer_pooling 'sum_last_four' needs four layers; the model has 2"):
        BertConfig.from_size("tiny", layer_pooling="sum_last_four")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", HEADS)
def test_kept_states_give_the_same_outputs(head: type[PretrainedModel], kind: str) -> None:
    model = scattered(head.from_config(small_config(num_hidden_layers=4, layer_pooling=kind))).eval()
    batch = ragged_batch(model.config, [5, 3, 4], 6)
    seqs = model.bert.pack(**batch)
    with torch.no_grad():
        states = model.bert.layer_pooling.select(model.bert.layer_outputs(seqs))
        kept = replace(seqs, frozen_states=states, input_ids=torch.zeros_like(seqs.input_ids))
        # To rounding, as the last layer runs for the tokens alone that the head reads.
        torch.testing.assert_close(model.packed_logits(kept), model.packed_logits(seqs))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", HEADS)
def test_folder_gives_the_model_back_under_a_type_of_its_own(
    head: type[PretrainedModel], kind: str, tmp_path: Path
) -> None:
    model = scattered(head.from_config(small_config(num_hidden_layers=4, layer_pooling=kind))).eval()
    model.save_pretrained(tmp_path)
    again = head.from_pretrained(tmp_path)
    assert (again.config.model_type == "bert") == (kind == "last")
    seqs = model.bert.pack(**ragged_batch(model.config, [5, 3], 6))
    with torch.no_grad():
        assert torch.equal(again.packed_logits(seqs), model.packed_logits(seqs))
