"""Counts of the parameters that a configuration's model has; nothing is allocated for them."""

from dataclasses import replace

from torch import nn

from bert_core.config import BertConfig
from bert_core.heads import BertForPreTraining, BertForTokenClassification
from bert_core.model import BertModel


def count_encoder_parameters(config: BertConfig) -> int:
    """Parameters of the encoder alone."""
    return _count(BertModel(config, seed=None))


def count_pretraining_parameters(config: BertConfig) -> int:
    """Parameters of a model to pretrain, its heads included."""
    return _count(BertForPreTraining(config, seed=None))


def count_lstm_parameters(
    config: BertConfig, layer_pooling: str, num_lstm_layers: int, lstm_hidden_size: int | None
) -> int:
    """Parameters of the LSTM layers between an encoder and the head of token classification."""
    changes = {
        "layer_pooling": layer_pooling,
        "num_lstm_layers": num_lstm_layers,
        "lstm_hidden_size": lstm_hidden_size,
    }
    lstm = BertForTokenClassification(replace(config, **changes), seed=None).lstm  # type: ignore[arg-type]
    return 0 if lstm is None else _count(lstm)


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
