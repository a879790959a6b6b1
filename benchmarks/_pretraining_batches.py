"""Batches of random tokens for the benchmarks of training steps, and both sides' losses of them."""

import torch
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.constants import IGNORE_INDEX
from bert_core.heads.pretraining import BertForPreTraining, PretrainingLabels
from bert_core.packed_sequences import PackedSequences

FILL = 0.57
"""Share of the padded positions that hold real tokens."""
OBJECTIVES = ("masked_lm", "next_sentence")
"""Objectives of both sides."""


def make_batch(config: BertConfig, batch_size: int, width: int, fill: float = FILL, seed: int = 0) -> dict[str, Tensor]:
    """Make padded rows with labels; 15 % of the real tokens are predicted."""
    generator = torch.Generator().manual_seed(seed)
    shortest = int((2 * fill - 1) * width)  # lengths spread evenly up to the full width
    lengths = torch.linspace(shortest, width, batch_size).int()[torch.randperm(batch_size, generator=generator)]
    mask = (torch.arange(width) < lengths[:, None]).long()
    input_ids = torch.randint(5, config.vocab_size, mask.shape, generator=generator) * mask
    predicted = (torch.rand(mask.shape, generator=generator) < 0.15) & mask.bool()
    return {
        "input_ids": input_ids,
        "attention_mask": mask,
        "token_type_ids": (torch.arange(width) >= lengths[:, None] // 2).long() * mask,
        "labels": torch.where(predicted, input_ids, IGNORE_INDEX),
        "next_sentence_label": torch.randint(0, 2, (batch_size,), generator=generator),
    }


def padded_loss(model: torch.nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Loss of padded rows, as transformers computes it."""
    return model(**batch).loss  # type: ignore[no-any-return]


def pack_batch(batch: dict[str, Tensor]) -> tuple[PackedSequences, PretrainingLabels]:
    """Pack padded rows and their labels, as a training run has them."""
    seqs = PackedSequences.from_padded(batch["input_ids"], batch["attention_mask"], batch["token_type_ids"])
    labels = seqs.pack(batch["labels"])
    positions = (labels != IGNORE_INDEX).nonzero().squeeze(1)
    return seqs, PretrainingLabels(positions, labels[positions], batch["next_sentence_label"])


def loss_of(model: BertForPreTraining, seqs: PackedSequences, labels: PretrainingLabels) -> Tensor:
    """Loss of packed sequences: the objectives' means, added up."""
    sums = model.packed_loss_sums(seqs, labels, OBJECTIVES)
    return torch.stack([each.loss / each.num_predictions for each in sums.values()]).sum()


def packed_loss(model: BertForPreTraining, batch: dict[str, Tensor]) -> Tensor:
    """Loss of padded rows, which are packed first."""
    return loss_of(model, *pack_batch(batch))
