"""The heads under one roof: which model a task needs, how it starts, what it is trained on.

Shapes: W windows, T tokens, C classes, S slots of a padded row.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bert_core.checkpoints.sentence_transformers import SentenceEmbeddingConfig, read_sentence_embedding
from bert_core.config import BertConfig
from bert_core.config_fields import ProblemType
from bert_core.constants import IGNORE_INDEX
from bert_core.families import ENCODER
from bert_core.heads import (
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from bert_core.packed_sequences import PackedSequences
from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import SpecError
from orchestrator.finetuning.dual_encoder import DualEncoder
from orchestrator.models.config import build_config
from orchestrator.specs import ModelSpec, RecipeSpec
from orchestrator.specs.task import Head, Objective
from orchestrator.tasks import Features

HeadModel: TypeAlias = (
    BertForSequenceClassification
    | BertForMultipleChoice
    | BertForTokenClassification
    | BertForQuestionAnswering
    | DualEncoder
)

HEAD_MODELS: Mapping[Head, type[HeadModel]] = {
    "classification": BertForSequenceClassification,
    "multi_label": BertForSequenceClassification,
    "multiple_choice": BertForMultipleChoice,
    "regression": BertForSequenceClassification,
    "ner": BertForTokenClassification,
    "qa": BertForQuestionAnswering,
    "embedding": DualEncoder,
}


_PROBLEM_TYPES: Mapping[Head, ProblemType] = {
    "classification": "single_label_classification",
    "multi_label": "multi_label_classification",
}


@dataclass(frozen=True)
class Batch:
    """Windows as the model eats them, and what it should say."""

    seqs: PackedSequences
    targets: Tensor
    """(W,) classes or values, (W, C) labels, (W / C,) places of right choices, (T,) tags, (W, 2) first and last token
    of the answer within the window, or (W / 2, 2) numbers of texts that belong together"""
    windows: NDArray[np.int64]
    """(W,) which windows of the features these are"""
    extra: Tensor | None = None
    """(W, E) what stands beside the text"""


def build_model(
    head: Head,
    labels: tuple[str, ...],
    recipe: RecipeSpec,
    init_folder: str | None,
    tokenizer: Tokenizer,
    num_tabular_features: int = 0,
    objective: Objective | None = None,
) -> HeadModel:
    """A new head on a new encoder or on that of `init_folder`. The recipe's seed draws what is new.

    Args:
        num_tabular_features: numbers beside the text that the head reads.
        objective: what vectors are trained on (embedding).

    Raises: SpecError, CheckpointError, TokenizerError where recipe, tokenizer and checkpoint do not fit together.
    """
    config = replace(_config(head, labels, recipe, init_folder, tokenizer), num_tabular_features=num_tabular_features)
    check_fit(config, recipe, tokenizer)
    model = HEAD_MODELS[head].from_config(config, recipe.seed)
    if init_folder is not None:
        own = model.state_dict()
        found = _encoder_weights(head, init_folder)
        # A head that reads several layers has a pooler of another width, which starts anew.
        fitting = {name: found[name] for name in own.keys() & found.keys() if own[name].shape == found[name].shape}
        model.load_state_dict({**own, **fitting})
    if isinstance(model, DualEncoder):
        assert objective is not None, "a task for embeddings has one"
        kept = SentenceEmbeddingConfig() if init_folder is None else read_sentence_embedding(Path(init_folder))
        model.prepare(objective, kept, recipe)
    return model


def check_fit(config: BertConfig, recipe: RecipeSpec, tokenizer: Tokenizer) -> None:
    """See that a model reads what the recipe gives it. Raises: SpecError, TokenizerError."""
    tokenizer.check_fits(config.vocab_size)
    if recipe.max_seq_length > config.max_seq_length:
        raise SpecError(
            f"recipe.max_seq_length {recipe.max_seq_length} is longer than the {config.max_seq_length} tokens "
            f"that {recipe.init_from} can read (max_position_embeddings); lower it or start from another model"
        )


def _config(
    head: Head, labels: tuple[str, ...], recipe: RecipeSpec, init_folder: str | None, tokenizer: Tokenizer
) -> BertConfig:
    if init_folder is None:
        model = ModelSpec(
            size=recipe.size,
            family=recipe.family,
            max_position_embeddings=max(512, recipe.max_seq_length),
            initializer_range=recipe.initializer_range,
        )
        config = build_config(model, tokenizer.vocab_size, tokenizer.pad_id)
    else:
        config = BertConfig.from_pretrained(init_folder)
    config = replace(
        config,
        token_decoder=recipe.token_decoder,
        num_lstm_layers=recipe.num_lstm_layers,
        lstm_hidden_size=recipe.lstm_hidden_size,
        layer_pooling=recipe.layer_pooling,
        span_boundary_objective=False,  # a head of pretraining's alone
    )
    if recipe.dropout is not None:
        config = config.with_dropout(recipe.dropout)
    if head == "regression":
        return config.with_labels(["score"], "regression")
    if not labels:
        return replace(config, problem_type=None)
    return config.with_labels(labels, _PROBLEM_TYPES.get(head))


@lru_cache(maxsize=2)
def _encoder_weights(head: Head, folder: str) -> dict[str, Tensor]:
    """A folder's encoder, read and checked once per process; weights that it lacks are left out."""
    model = HEAD_MODELS[head].from_pretrained(Path(folder), encoder_only=True)
    assert model.load_report is not None
    lacking = any(".pooler." in name for name in model.load_report.initialized)
    return {
        name: tensor
        for name, tensor in model.state_dict().items()
        if name.startswith(ENCODER) and not (lacking and name.startswith(f"{ENCODER}pooler."))
    }


def make_batch(features: Features, windows: NDArray[np.int64], device: torch.device) -> Batch:
    """Some windows as one packed batch, without padding."""
    tokens, examples = features.token_index(windows), features.example_index[windows]
    seqs = PackedSequences.from_numpy(
        features.input_ids[tokens],
        features.token_type_ids[tokens],
        np.concatenate([[0], np.cumsum(features.lengths[windows])]),
    )
    if features.states.size:
        seqs = replace(seqs, frozen_states=torch.from_numpy(features.states[tokens]))
    if features.head == "ner":
        targets: NDArray[Any] = features.token_labels[tokens]
    elif features.head == "qa":
        targets = np.stack([features.start_positions[windows], features.end_positions[windows]], axis=1)
    else:
        targets = features.labels[examples[:: features.group_size]]
    is_float = features.head == "multi_label" or targets.dtype.kind == "f"
    dtype = torch.float32 if is_float else torch.int64
    return Batch(
        seqs.to(device),
        torch.from_numpy(np.ascontiguousarray(targets)).to(device, dtype),
        windows,
        torch.from_numpy(features.extra[examples]).to(device) if features.extra.size else None,
    )


def compute_batch_logits(model: HeadModel, batch: Batch) -> Tensor:
    """(W, C) for sequences, (W,) for choices, (T, C) for tokens, vectors (W, H) for embeddings; float32."""
    if isinstance(model, BertForSequenceClassification):
        return model.packed_logits(batch.seqs, batch.extra).float()
    return model.packed_logits(batch.seqs).float()


def compute_loss(head: Head, model: HeadModel, batch: Batch) -> Tensor:
    """The mean loss over a batch's windows, its words (ner) or its examples (multiple_choice)."""
    return loss_of_logits(head, model, compute_batch_logits(model, batch), batch)


def loss_of_logits(head: Head, model: HeadModel, logits: Tensor, batch: Batch) -> Tensor:
    """The same of logits that are there already: (W, C), (W,) or (T, C) → scalar."""
    if isinstance(model, BertForTokenClassification):
        return model.compute_loss(logits, batch.targets, batch.seqs)
    if isinstance(model, DualEncoder):
        return model.compute_loss(logits, batch.targets)
    if head == "regression":
        return F.mse_loss(logits.squeeze(-1), batch.targets)
    if head == "qa":
        return _span_loss(logits, batch)
    if head == "multi_label":
        return F.binary_cross_entropy_with_logits(logits, batch.targets)
    if head == "multiple_choice":
        logits = logits.view(len(batch.targets), -1)  # (B, C)
    return F.cross_entropy(logits, batch.targets, ignore_index=IGNORE_INDEX)


def _span_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Mean of the first and the last token's cross entropy, each over the window's own tokens: (T, 2) → scalar."""
    rows = batch.seqs.unpack(logits).transpose(1, 2)  # (W, 2, S)
    rows = rows.masked_fill(~batch.seqs.attention_mask[:, None, :], -math.inf)
    return F.cross_entropy(rows.flatten(0, 1), batch.targets.flatten())
