"""The names in Hugging Face's files. Run alone: pytest tests/bert_core/checkpoints/test_weight_names.py"""

import pytest
import torch

from bert_core.checkpoints.weight_names import WeightNames
from bert_core.config import BertConfig
from bert_core.families import FAMILIES
from bert_core.heads import BertForPreTraining
from bert_core.model import BertModel
from tests.bert_core.reference import small_config

NAMES = BertForPreTraining.from_config(small_config()).weight_names


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_survives_the_way_to_a_file_and_back(family: str) -> None:
    model = BertForPreTraining.from_config(BertConfig.from_size("tiny", family, vocab_size=11))
    state = model.state_dict()
    weights = model.weight_names.normalized(model.weight_names.to_file(state), state)
    for name, tensor in state.items():
        assert torch.equal(model.weight_names.from_file(name, weights), tensor), name


def test_query_key_and_value_are_split_by_rows() -> None:
    names = WeightNames(FAMILIES["bert"], "BertModel", is_encoder_alone=True)
    weights = names.to_file({"layers.0.qkv.weight": torch.arange(12.0).view(6, 2)})
    assert weights["encoder.layer.0.attention.self.key.weight"].tolist() == [[4.0, 5.0], [6.0, 7.0]]


def test_an_encoder_alone_is_written_without_the_prefix_and_found_with_and_without() -> None:
    model = BertModel.from_config(small_config())
    weights = model.weight_names.to_file(model.state_dict())
    assert "pooler.dense.bias" in weights
    with_prefix = {f"bert.{name}": tensor for name, tensor in weights.items()}
    for found in (weights, with_prefix):
        assert model.weight_names.normalized(found, model.state_dict()).keys() == with_prefix.keys()


def test_decoder_s_bias_stands_in_for_a_missing_one() -> None:
    file = {"cls.predictions.decoder.bias": torch.ones(1), "bert.embeddings.position_ids": torch.ones(1)}
    assert list(NAMES.normalized(file, ["prediction.bias"])) == ["cls.predictions.bias"]


def test_head_names_stay_as_they_are() -> None:
    assert NAMES.of("classifier.weight") == ("classifier.weight",)
