"""Layers whose inside backward computes again: the same bits, with less memory.

Run alone: pytest tests/bert_core/test_recomputed_layers.py
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from bert_core.heads import BertForPreTraining
from tests.bert_core.reference import ragged_batch, small_config

CHOICES: dict[str, dict[str, Any]] = {
    "bert": {},
    "albert": {"num_hidden_groups": 1, "embedding_size": 12},
    "pre_norm": {"norm_placement": "pre", "feed_forward": "gated", "position_embedding_type": "rotary"},
}


def gradients(recomputes: bool, **changes: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss and gradients of a batch with dropout."""
    config = small_config(**changes).with_dropout(0.2)
    model = BertForPreTraining.from_config(config, seed=3).train()
    model.bert.recomputes_layers = recomputes
    torch.manual_seed(11)
    batch = ragged_batch(config, [9, 4, 12], 12)
    loss = model(**batch, labels=batch["input_ids"], next_sentence_label=torch.tensor([0, 1, 0])).loss
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("choice", list(CHOICES))
def test_gradients_are_the_same_bits_with_dropout(choice: str) -> None:
    (loss, kept), (again, recomputed) = (gradients(recomputes, **CHOICES[choice]) for recomputes in (False, True))
    assert torch.equal(loss, again)
    assert kept.keys() == recomputed.keys()
    assert all(torch.equal(kept[name], recomputed[name]) for name in kept)


def test_only_what_goes_into_a_layer_is_kept() -> None:
    """Bytes that backward waits for, of an encoder with six layers."""
    config = small_config(num_hidden_layers=6, intermediate_size=96).with_dropout(0.1)
    batch = ragged_batch(config, [24] * 8, 24)
    num_bytes = {}
    for recomputes in (False, True):
        model = BertForPreTraining.from_config(config).train()
        model.bert.recomputes_layers = recomputes
        weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        kept: dict[int, Tensor] = {}

        def keep(tensor: Tensor, kept: dict[int, Tensor] = kept, weights: set[int] = weights) -> Tensor:
            if tensor.untyped_storage().data_ptr() not in weights:
                kept[tensor.untyped_storage().data_ptr()] = tensor  # held, so that no other tensor gets its place
            return tensor

        seqs = model.bert.pack(batch["input_ids"], batch["attention_mask"])
        with saved_tensors_hooks(keep, lambda tensor: tensor):
            hidden = model.bert.encode(seqs)
        num_bytes[recomputes] = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
        if recomputes:  # torch keeps the inputs of layers beside what the hooks see
            num_bytes[recomputes] += config.num_hidden_layers * hidden.nbytes
    assert num_bytes[True] < 0.25 * num_bytes[False]
