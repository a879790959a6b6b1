"""Feature-based use: a frozen encoder's outputs, computed once for a split and kept beside its other features.

Devlin et al. 2018, section 5.3. Without dropout a token's outputs never change, so that a trial reads them from the
storage, where all trials of the same encoder find them; of a split's tokens only those stay that the head reads.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
import torch
from numpy.typing import NDArray

from bert_core.constants import IGNORE_INDEX
from orchestrator.finetuning.heads import HeadModel, make_batch
from orchestrator.finetuning.logits import autocast
from orchestrator.specs.network import Precision
from orchestrator.tasks import Features, keep_features
from orchestrator.training.batch_order import length_batches

_STATES_VERSION = 1
"""Raised when the same layers would give other outputs."""
_ABOVE = ("id2label", "problem_type", "token_decoder", "num_lstm_layers", "lstm_hidden_size", "num_tabular_features")
"""Fields of a configuration that concern the head alone."""
_MAX_TOKENS = 8_192
"""Slots of a batch through the encoder, were it padded: bounds the memory that all layers' outputs take."""


def freeze(splits: Sequence[Features], model: HeadModel, precision: Precision, cache: str) -> list[Features]:
    """Splits with the outputs that the model's head reads, from the cache or computed and kept there."""
    config = asdict(model.config.with_dropout(0.0))
    arithmetic = {name: value for name, value in config.items() if name not in _ABOVE}
    place = [next(model.parameters()).device.type, torch.get_num_threads()]  # both decide the last bits
    encoder = [_STATES_VERSION, _digest(model), arithmetic, precision, place]

    def freeze_one(features: Features) -> Features:
        parts = [features.fingerprint, *encoder, _reads_every_token(model, features)]
        key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        return keep_features(
            cache, key, features.head, features.split, lambda: compute_states(features, model, precision)
        )

    return [freeze_one(features) for features in splits]


@torch.inference_mode()
def compute_states(features: Features, model: HeadModel, precision: Precision = "fp32") -> Features:
    """The features of the tokens that the head reads, with what the encoder gives for them."""
    model.eval()
    device = next(model.parameters()).device
    rows = np.arange(len(features.input_ids)) if _reads_every_token(model, features) else _rows(features)
    states: NDArray[np.float32] | None = None
    for windows in length_batches(features.lengths, len(rows), _MAX_TOKENS):
        seqs = make_batch(features, windows, device).seqs
        with autocast(device, precision):
            values = model.bert.layer_pooling.select(model.bert.layer_outputs(seqs)).float().cpu().numpy()
        tokens = features.token_index(windows)
        places = np.minimum(np.searchsorted(rows, tokens), len(rows) - 1)
        kept = rows[places] == tokens
        if states is None:
            states = np.empty((len(rows), *values.shape[1:]), np.float32)
        states[places[kept]] = values[kept]
    assert states is not None, "a split has at least one example"
    return _reduced(features, rows, states)


def _reads_every_token(model: HeadModel, features: Features) -> bool:
    config = model.config  # a causal model pools the last token, which is not among `_rows`
    return features.head == "qa" or config.num_lstm_layers > 0 or config.causal_attention


def _rows(features: Features) -> NDArray[np.int64]:
    """The tokens that are classified, ascending; each window's first is among them."""
    firsts = features.cu_seqlens[:-1]
    labeled = np.flatnonzero(features.token_labels != IGNORE_INDEX)
    return np.unique(np.concatenate([firsts, labeled, features.word_starts]))


def _reduced(features: Features, rows: NDArray[np.int64], states: NDArray[np.float32]) -> Features:
    is_ner, is_qa = features.head == "ner", features.head == "qa"
    return replace(
        features,
        input_ids=features.input_ids[rows],
        token_type_ids=features.token_type_ids[rows],
        cu_seqlens=np.searchsorted(rows, features.cu_seqlens),
        token_labels=features.token_labels[rows] if is_ner else features.token_labels,
        word_starts=np.searchsorted(rows, features.word_starts),
        offsets=features.offsets[rows] if is_qa else features.offsets,
        states=states,
    )


def _digest(model: HeadModel) -> str:
    """Over the weights that the outputs depend on."""
    digest = hashlib.sha256()
    for part in (model.bert.embeddings, model.bert.layers, getattr(model.bert, "norm", None)):
        for name, tensor in () if part is None else part.state_dict().items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
    return digest.hexdigest()
