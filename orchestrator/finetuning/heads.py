"""The three heads under one roof: which model a task needs, how it starts, what it is trained on.

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

from bert_core.config import BertConfig
from bert_core.heads import BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification
from bert_core.masking import IGNORED
from bert_core.packed_sequences import PackedSequences
from bert_core.tokenization import Tokenizer
from orchestrator.errors import SpecError
from orchestrator.network_config import build_config
from orchestrator.specs import ModelSpec, RecipeSpec
from orchestrator.specs.sweep import Head
from orchestrator.tasks import Features

HeadModel: TypeAlias = BertForSequenceClassification | BertForTokenClassification | BertForQuestionAnswering

HEAD_MODELS: Mapping[Head, type[HeadModel]] = {
    "classification": BertForSequenceClassification,
    "regression": BertForSequenceClassification,
    "ner": BertForTokenClassification,
    "qa": BertForQuestionAnswering,
}


@dataclass(frozen=True)
class Batch:
    """Windows as the model eats them, and what it should say."""

    seqs: PackedSequences
    targets: Tensor
    """(W,) classes or values, (T,) tags, or (W, 2) first and last token of the answer within the window"""
    windows: NDArray[np.int64]
    """(W,) which windows of the features these are"""


def build_model(
    head: Head, labels: tuple[str, ...], recipe: RecipeSpec, init_folder: str | None, tokenizer: Tokenizer
) -> HeadModel:
    """A new head on a new encoder or on that of `init_folder`. The recipe's seed draws what is new.

    Raises: SpecError, CheckpointError, TokenizerError where recipe, tokenizer and checkpoint do not fit together.
    """
    config = _config(head, labels, recipe, init_folder, tokenizer)
    check_fit(config, recipe, tokenizer)
    model = HEAD_MODELS[head].from_config(config, recipe.seed)
    if init_folder is not None:
        own = model.state_dict()
        found = _encoder_weights(head, init_folder)
        # A head that reads several layers has a pooler of another width, which starts anew.
        fitting = {name: found[name] for name in own.keys() & found.keys() if own[name].shape == found[name].shape}
        model.load_state_dict({**own, **fitting})
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
    decoder = recipe.token_decoder if head == "ner" else "softmax"
    config = replace(config, token_decoder=decoder, head_input=recipe.head_input)
    if recipe.dropout is not None:
        config = config.with_dropout(recipe.dropout)
    if head == "regression":
        return config.with_labels(["score"], "regression")
    if head == "qa":
        return replace(config, problem_type=None)
    return config.with_labels(labels, "single_label_classification" if head == "classification" else None)


@lru_cache(maxsize=2)
def _encoder_weights(head: Head, folder: str) -> dict[str, Tensor]:
    """A folder's encoder, read and checked once per process; weights that it lacks are left out."""
    model = HEAD_MODELS[head].from_pretrained(Path(folder), encoder_only=True)
    assert model.load_report is not None
    lacking = any(".pooler." in name for name in model.load_report.initialised)
    return {
        name: tensor
        for name, tensor in model.state_dict().items()
        if name.startswith("bert.") and not (lacking and name.startswith("bert.pooler."))
    }


def make_batch(features: Features, windows: NDArray[np.int64], device: torch.device) -> Batch:
    """Some windows as one packed batch, without padding."""
    tokens = features.token_index(windows)
    seqs = PackedSequences.from_numpy(
        features.input_ids[tokens],
        features.token_type_ids[tokens],
        np.concatenate([[0], np.cumsum(features.lengths[windows])]),
    )
    if features.states.size:
        seqs = replace(seqs, states=torch.from_numpy(features.states[tokens]))
    if features.head == "ner":
        targets: NDArray[Any] = features.token_labels[tokens]
    elif features.head == "qa":
        targets = np.stack([features.start_positions[windows], features.end_positions[windows]], axis=1)
    else:
        targets = features.labels[windows]
    dtype = torch.float32 if features.head == "regression" else torch.int64
    return Batch(seqs.to(device), torch.from_numpy(np.ascontiguousarray(targets)).to(device, dtype), windows)


def compute_loss(head: Head, model: HeadModel, batch: Batch) -> Tensor:
    """The mean loss over a batch's windows, or over its words (ner)."""
    return loss_of_logits(head, model, model.packed_logits(batch.seqs).float(), batch)


def loss_of_logits(head: Head, model: HeadModel, logits: Tensor, batch: Batch) -> Tensor:
    """The same of logits that are there already: (W, C) or (T, C) → scalar."""
    if isinstance(model, BertForTokenClassification):
        return model.compute_loss(logits, batch.targets, batch.seqs)
    if head == "regression":
        return F.mse_loss(logits.squeeze(-1), batch.targets)
    if head == "qa":
        return _span_loss(logits, batch)
    return F.cross_entropy(logits, batch.targets, ignore_index=IGNORED)


def _span_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Mean of the first and the last token's cross entropy, each over the window's own tokens: (T, 2) → scalar."""
    rows = batch.seqs.unpack(logits).transpose(1, 2)  # (W, 2, S)
    rows = rows.masked_fill(~batch.seqs.is_key[:, None, :], -math.inf)
    return F.cross_entropy(rows.flatten(0, 1), batch.targets.flatten())
