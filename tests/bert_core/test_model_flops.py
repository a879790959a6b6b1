"""FLOPs of a model, against those that torch counts in a step. Alone: pytest tests/bert_core/test_model_flops.py"""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bert_core.config import BertConfig
from bert_core.heads import BertForPreTraining
from bert_core.heads.pretraining import PretrainingLabels
from bert_core.kernels import linear
from bert_core.model_flops import count_flops_per_prediction, count_flops_per_read_token, count_flops_per_token
from bert_core.packed_sequences import PackedSequences

BASE = BertConfig.from_size("base")
SMALL = {"num_hidden_layers": 3, "hidden_size": 64, "vocab_size": 300}


@pytest.mark.parametrize(
    "config",
    [
        BertConfig.from_shape(**SMALL),
        BertConfig.from_shape(**SMALL, family="modern"),
        BertConfig.from_shape(**SMALL, family="albert", embedding_size=32),
        BertConfig.from_shape(**SMALL, prediction_transform=False),
    ],
    ids=["bert", "gated", "narrow embeddings, shared layers", "no transform"],
)
def test_a_step_takes_them_and_those_of_attention(config: BertConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_ONEDNN", False)  # torch does not count what oneDNN computes
    num_sequences, length, num_predictions = 2, 32, 5
    model = BertForPreTraining(config).train()
    seqs = PackedSequences.from_padded(torch.randint(5, 300, (num_sequences, length)))
    labels = PretrainingLabels(torch.arange(num_predictions), torch.arange(num_predictions) + 5, torch.tensor([]))
    with FlopCounterMode(display=False) as counter:
        model.packed_loss_sums(seqs, labels, ("masked_lm",))["masked_lm"].loss.backward()
    tokens, predictions = count_flops_per_token(config), count_flops_per_prediction(config)
    attention = 12 * config.num_hidden_layers * config.hidden_size * num_sequences * length**2
    unread = count_flops_per_read_token(config) * (num_sequences * length - num_predictions)
    whole = tokens * num_sequences * length + predictions * num_predictions + attention
    assert counter.get_total_flops() == whole - unread


def test_bert_base_takes_six_for_each_of_its_85_million_weights() -> None:
    assert count_flops_per_token(BASE) == 6 * 12 * 12 * 768 * 768
