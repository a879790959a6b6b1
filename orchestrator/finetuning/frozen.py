"""Feature-based use: a frozen encoder's outputs, computed once for a split and kept beside its other features.

Devlin et al. 2018, section 5.3. Without dropout a token's outputs never change, so that a trial reads them from the
storage, where all trials of the same encoder find them; of a split's tokens only those stay that the head reads.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from orchestrator.finetuning.batches import make_batch
from orchestrator.finetuning.heads import HEADS, HeadModel
from orchestrator.finetuning.logits import TokenBudget, autocast
from orchestrator.specs.network import Precision
from orchestrator.tasks import Features, keep_features
from orchestrator.tasks.features import A

logger = logging.getLogger(__name__)
_STATES_VERSION = 1
"""Raised when the same layers would give other outputs."""
_ABOVE = ("id2label", "problem_type", "token_decoder", "num_lstm_layers", "lstm_hidden_size", "num_tabular_features")
"""Fields of a configuration that concern the head alone."""
_MAX_TOKENS = 8_192
"""Slots of a batch through the encoder, were it padded: bounds the memory that all layers' outputs take."""


def freeze(
    splits: Sequence[Features[A]],
    model: HeadModel,
    precision: Precision,
    cache: str,
    warn: Callable[[str], None] = logger.warning,
) -> list[Features[A]]:
    """Splits with the outputs that the model's head reads, from the cache or computed and kept there.

    Args:
        warn: told, in one line, that memory ran out and what is done about it.
    """
    config = asdict(model.config.with_dropout(0.0))
    arithmetic = {name: value for name, value in config.items() if name not in _ABOVE}
    device = next(model.parameters()).device.type
    place = [device, torch.get_num_threads()]  # both decide the last bits
    if device == "cuda":
        place.append(torch.get_float32_matmul_precision())
    encoder = [_STATES_VERSION, _digest(model), arithmetic, precision, place]

    def freeze_one(features: Features[A]) -> Features[A]:
        reads_all = HEADS[features.head].tokens_read(model.config, features) is None
        parts = [features.fingerprint, *encoder, reads_all]
        key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        arrays_type = type(features.head_arrays)
        compute = partial(compute_states, features, model, precision, budget)
        return keep_features(cache, key, arrays_type, features.head, features.split, compute)

    budget = TokenBudget(_MAX_TOKENS, warn)
    return [freeze_one(features) for features in splits]


@torch.inference_mode()
def compute_states(
    features: Features[A], model: HeadModel, precision: Precision = "fp32", budget: TokenBudget | None = None
) -> Features[A]:
    """The features of the tokens that the head reads, with what the encoder gives for them.

    Args:
        budget: of the device, as earlier calls left it; a new one when left out.
    """
    model.eval()
    device = next(model.parameters()).device
    rows = HEADS[features.head].tokens_read(model.config, features)
    if rows is None:
        rows = np.arange(len(features.input_ids))
    states: NDArray[np.float32] | None = None

    def compute(windows: NDArray[np.int64]) -> None:
        nonlocal states
        seqs = make_batch(features, windows, device).seqs
        with autocast(device, precision):
            selected = model.bert.layer_pooling.select(model.bert.layer_outputs(seqs)).float()
        # Read at once: page-locked memory for a late read, of all layers' states, would stay this process's for good.
        values = selected.cpu().numpy()
        tokens = features.token_index(windows)
        places = np.minimum(np.searchsorted(rows, tokens), len(rows) - 1)
        is_read = rows[places] == tokens
        if states is None:
            states = np.empty((len(rows), *values.shape[1:]), np.float32)
        states[places[is_read]] = values[is_read]

    (budget or TokenBudget(_MAX_TOKENS)).compute(features.lengths, len(rows), compute)
    assert states is not None, "a split has at least one example"
    return features.at_tokens(rows, states)


def _digest(model: HeadModel) -> str:
    """SHA-256 over the weights that the outputs depend on."""
    digest = hashlib.sha256()
    for part in (model.bert.embeddings, model.bert.layers, model.bert.norm):
        for name, tensor in () if part is None else part.state_dict().items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
    return digest.hexdigest()
