"""The names in Hugging Face's files. Run alone: pytest tests/bert_core/test_weight_names.py"""

import torch

from bert_core.heads import BertForPreTraining
from bert_core.weight_names import canonical, file_names, from_file, normalised, to_file
from tests.bert_core.reference import small_config


def test_every_weight_survives_the_way_to_a_file_and_back() -> None:
    state = BertForPreTraining.from_config(small_config()).state_dict()
    weights = normalised(to_file(state))
    for name, tensor in state.items():
        assert torch.equal(from_file(file_names(name), weights), tensor), name


def test_query_key_and_value_are_split_by_rows() -> None:
    weights = to_file({"layers.0.qkv.weight": torch.arange(12.0).view(6, 2)})
    assert weights["encoder.layer.0.attention.self.key.weight"].tolist() == [[4.0, 5.0], [6.0, 7.0]]


def test_decoder_s_bias_stands_in_for_a_missing_one() -> None:
    weights = normalised({"cls.predictions.decoder.bias": torch.ones(1), "bert.embeddings.position_ids": torch.ones(1)})
    assert list(weights) == ["cls.predictions.bias"]


def test_head_names_stay_as_they_are() -> None:
    assert canonical("classifier.weight") == "classifier.weight"
    assert file_names("classifier.weight") == ("classifier.weight",)
