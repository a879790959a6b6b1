"""Small models of each family with each head, random inputs for them, and their losses with gradients.

Shapes: B sequences, S width of a row, C choices.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks._pretraining_batches import pack_batch
from benchmarks.gpu.setting import in_precision, product_precision
from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.constants import IGNORE_INDEX
from bert_core.heads import (
    BertForMultipleChoice,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSentenceEmbedding,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from bert_core.heads.sentence_selection import BertForSentenceSelection
from bert_core.objectives import SENTENCE_OBJECTIVES

CPU = torch.device("cpu")
ROUNDINGS_OF_MODEL = (48, 96)
"""Two layers with some twelve roundings each, in values; the same again in gradients; and the head's."""
_NUM_TABULAR_FEATURES = 3


@dataclass(frozen=True)
class Head:
    """A model with a head, in one of the head's forms."""

    model_class: type[PretrainedModel]
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the configuration that make the form."""
    objectives: tuple[str, ...] = ()
    """Objectives of a pretraining."""


HEADS: Mapping[str, Head] = {
    "BertForPreTraining": Head(BertForPreTraining, objectives=("masked_lm", "next_sentence")),
    "BertForPreTraining, sentence order": Head(
        BertForPreTraining, {"sentence_head": True}, ("masked_lm", "sentence_order")
    ),
    "BertForPreTraining, span boundary": Head(
        BertForPreTraining, {"span_boundary_objective": True}, ("masked_lm", "span_boundary")
    ),
    "BertForPreTraining, left to right": Head(BertForPreTraining, {"causal_attention": True}, ("left_to_right",)),
    "BertForMultipleChoice": Head(BertForMultipleChoice),
    "BertForQuestionAnswering": Head(BertForQuestionAnswering),
    "BertForSentenceEmbedding": Head(BertForSentenceEmbedding),
    "BertForSentenceSelection": Head(BertForSentenceSelection),
    "BertForSequenceClassification": Head(BertForSequenceClassification),
    "BertForSequenceClassification, tabular columns": Head(
        BertForSequenceClassification, {"num_tabular_features": _NUM_TABULAR_FEATURES}
    ),
    "BertForTokenClassification": Head(BertForTokenClassification),
    "BertForTokenClassification, CRF": Head(BertForTokenClassification, {"token_decoder": "crf"}),
    "BertForTokenClassification, LSTM": Head(BertForTokenClassification, {"num_lstm_layers": 1}),
    "BertForTokenClassification, scalar mix": Head(BertForTokenClassification, {"layer_pooling": "scalar_mix"}),
}
"""All heads of `bert_core` by name, and those of their forms that have weights or a loss of their own."""

_LENGTHS = (12, 32, 5, 23)
_NUM_CHOICES = 2
_VOCABULARY = 5000
"""More columns than a kernel of the cross entropy holds at a time."""


def build_model(family: str, head: str) -> PretrainedModel:
    """Build a model of two layers without dropout, whose weights are large enough for a mistake in any to show."""
    sizes = {"vocab_size": _VOCABULARY, "initializer_range": 0.05}
    config = BertConfig.from_shape(2, 64, family, **{**sizes, **HEADS[head].changes}).with_dropout(0.0)
    return HEADS[head].model_class.from_config(config).train()


@contextmanager
def float64_everywhere() -> Iterator[None]:
    """Let what a model computes in fp32 in any case, as LSTM, CRF and losses, be in float64 during the block."""
    with patch.object(Tensor, "float", Tensor.double):
        yield


def random_inputs(model: PretrainedModel, head: str) -> dict[str, Tensor]:
    """Draw padded rows (B, S) and the labels of a head; (B, C, S) for multiple choice."""
    generator = torch.Generator().manual_seed(0)
    num_rows, width, config = len(_LENGTHS), max(_LENGTHS), model.config
    mask = (torch.arange(width) < torch.tensor(_LENGTHS)[:, None]).long()
    ids = torch.randint(6, config.vocab_size, mask.shape, generator=generator)
    inputs = {"input_ids": torch.where(mask.bool(), ids, config.pad_token_id or 0), "attention_mask": mask}
    inputs["token_type_ids"] = torch.zeros_like(mask)
    tags = torch.randint(2, mask.shape, generator=generator)
    classes = torch.randint(2, (num_rows,), generator=generator)
    is_predicted = (torch.rand(mask.shape, generator=generator) < 0.3) & mask.bool()
    is_predicted[:, 1] = True
    is_predicted[:, 0] = is_predicted[torch.arange(num_rows), mask.sum(dim=1) - 1] = False  # as [CLS] and [SEP] are
    labels: dict[str, dict[str, Tensor]] = {
        "BertForPreTraining": {
            "labels": torch.where(is_predicted, ids, IGNORE_INDEX),
            "next_sentence_label": classes,
        },
        "BertForMultipleChoice": {"labels": classes[: num_rows // _NUM_CHOICES]},
        "BertForQuestionAnswering": {"start_positions": classes, "end_positions": classes + 2},
        "BertForSentenceEmbedding": {},
        "BertForSentenceSelection": {"labels": torch.where(mask.bool() & (ids % 3 == 0), tags, IGNORE_INDEX)},
        "BertForSequenceClassification": {"labels": classes},
        "BertForTokenClassification": {"labels": torch.where(mask.bool(), tags, IGNORE_INDEX)},
    }
    if isinstance(model, BertForMultipleChoice):
        inputs = {name: value.view(-1, _NUM_CHOICES, width) for name, value in inputs.items()}
    if config.num_tabular_features:
        inputs["tabular_features"] = torch.rand(num_rows, config.num_tabular_features, generator=generator)
    return inputs | labels[HEADS[head].model_class.__name__]


def head_loss(model: PretrainedModel, head: str, inputs: dict[str, Tensor]) -> Tensor:
    """Compute the loss of a head; pretraining goes by packed sequences, as in training."""
    if isinstance(model, BertForPreTraining):
        left_out = () if model.config.sentence_head else SENTENCE_OBJECTIVES
        objectives = [name for name in HEADS[head].objectives if name not in left_out]
        sums = model.packed_loss_sums(*pack_batch(inputs), objectives)
        return torch.stack([each.loss / each.num_predictions for each in sums.values()]).sum()
    if isinstance(model, BertForSentenceEmbedding):
        embeddings: Tensor = model(**inputs).sentence_embedding  # (B, H)
        target = torch.linspace(-1, 1, embeddings.shape[1], device=embeddings.device)  # any: the head has no labels
        return (embeddings - target).square().sum()
    loss: Tensor = model(**inputs).loss
    return loss


def loss_and_gradient(
    model: PretrainedModel,
    head: str,
    inputs: dict[str, Tensor],
    device: torch.device = CPU,
    precision: str = "fp32",
) -> tuple[Tensor, Tensor]:
    """Loss of a model, and the gradients of all its parameters as one vector."""
    model.to(device)
    with product_precision(precision):
        with in_precision(precision, device):
            loss = head_loss(model, head, {name: tensor.to(device) for name, tensor in inputs.items()})
        loss.backward()  # type: ignore[no-untyped-call]  # outside of autocast, as in a training run
    return loss.detach(), gradient_vector(model)


def gradient_vector(model: PretrainedModel) -> Tensor:
    """Gradients of all parameters of a model as one vector."""
    gradients = [p.grad.flatten() if p.grad is not None else p.new_zeros(p.numel()) for p in model.parameters()]
    return torch.cat(gradients)
