"""Small models of each family with each head, random inputs for them, and their losses.

Shapes: B sequences, S width of a row, C choices.
"""

import torch
from torch import Tensor

import bert_core
from benchmarks._pretraining_batches import pack_batch
from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.constants import IGNORE_INDEX
from bert_core.heads import HEAD_MODULES
from bert_core.heads.pretraining import BertForPreTraining

HEADS = tuple(HEAD_MODULES)
"""Names of the models with a head."""

_LENGTHS = (12, 32, 5, 23)
_NUM_CHOICES = 2


def build_model(family: str, head: str) -> PretrainedModel:
    """Build a model of two layers without dropout, whose weights are large enough for a mistake in any to show."""
    config = BertConfig.from_shape(2, 64, family, vocab_size=120, initializer_range=0.1).with_dropout(0.0)
    model: PretrainedModel = getattr(bert_core, head).from_config(config)
    return model.train()


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
    labels: dict[str, dict[str, Tensor]] = {
        "BertForPreTraining": {
            "labels": torch.where(is_predicted, ids, IGNORE_INDEX),
            "next_sentence_label": classes,
        },
        "BertForMultipleChoice": {"labels": classes[: num_rows // _NUM_CHOICES]},
        "BertForQuestionAnswering": {"start_positions": classes, "end_positions": classes + 2},
        "BertForSentenceEmbedding": {},
        "BertForSequenceClassification": {"labels": classes},
        "BertForTokenClassification": {"labels": torch.where(mask.bool(), tags, IGNORE_INDEX)},
    }
    if head == "BertForMultipleChoice":
        inputs = {name: value.view(-1, _NUM_CHOICES, width) for name, value in inputs.items()}
    return inputs | labels[head]


def head_loss(model: PretrainedModel, head: str, inputs: dict[str, Tensor]) -> Tensor:
    """Compute the loss of a head; pretraining goes by packed sequences, as in training."""
    if isinstance(model, BertForPreTraining):
        objectives = ("masked_lm", "next_sentence") if model.config.sentence_head else ("masked_lm",)
        sums = model.packed_loss_sums(*pack_batch(inputs), objectives)
        return torch.stack([each.loss / each.num_predictions for each in sums.values()]).sum()
    if head == "BertForSentenceEmbedding":
        embeddings: Tensor = model(**inputs).sentence_embedding  # (B, H)
        target = torch.linspace(-1, 1, embeddings.shape[1], device=embeddings.device)  # any: the head has no labels
        return (embeddings - target).square().sum()
    loss: Tensor = model(**inputs).loss
    return loss
