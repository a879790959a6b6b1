"""The model_type of our own: it says every field, and keeps the names of weights in files.

Run alone: pytest tests/bert_core/families/test_native.py
"""

from dataclasses import fields

from bert_core.config import BertConfig
from bert_core.config_fields import ConfigFields
from bert_core.families import NATIVE
from bert_core.heads import BertForMultipleChoice, BertForTokenClassification
from tests.bert_core.reference import small_config


def test_every_field_of_a_configuration_is_written_and_read_back() -> None:
    config = small_config(model_type="bert_core", hidden_act="silu", num_lstm_layers=1, lstm_hidden_size=8)
    values = config.to_dict()
    assert values.keys() >= {item.name for item in fields(ConfigFields)}
    assert BertConfig.from_dict(values) == config


def test_renamed_parameters_keep_their_names_in_files() -> None:
    config = small_config(model_type="bert_core", layer_pooling="scalar_mix", choice_projection=True)
    model = BertForMultipleChoice.from_config(config)
    names = {model.weight_names.of(name)[0] for name, _ in model.named_parameters()}
    assert names >= {"bert.head_input.weights", "bert.head_input.scale", "summary.weight", "summary.bias"}
    assert NATIVE.file_names("bert.layer_pooling.scale", "BertForMultipleChoice") == ("bert.head_input.scale",)


def test_weights_of_an_lstm_keep_their_names_in_files() -> None:
    config = small_config(model_type="bert_core", num_lstm_layers=1, lstm_hidden_size=8)
    model = BertForTokenClassification.from_config(config)
    assert model.lstm is not None
    names = {model.weight_names.of(f"lstm.{name}")[0] for name, _ in model.lstm.named_parameters()}
    assert names == {f"recurrent.{name}" for name, _ in model.lstm.named_parameters()}
