"""A model's outputs for a whole split, in the split's own order: a head's logits, or a frozen encoder's states.

Fewer tokens go through at a time where memory runs out.

Shapes: W windows, T tokens, C classes.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bert_core.constants import AskedPrecision
from bert_core.device_copies import AsyncReads
from bert_core.micro_batches import first_line, is_out_of_memory
from orchestrator.cluster.torch_devices import autocast, computes_in_bf16
from orchestrator.finetuning.batches import make_batch
from orchestrator.finetuning.heads import HEADS, HeadModel
from orchestrator.tasks.feature_cache import keep_features
from orchestrator.tasks.features import A, Features
from orchestrator.training.micro_batches import check_can_shrink

_CPU_BATCH_SIZE = 64
_STATES_VERSION = 1
"""Raised when the same layers would give other outputs."""
_ABOVE = ("id2label", "problem_type", "token_decoder", "num_lstm_layers", "lstm_hidden_size", "num_tabular_features")
"""Fields of a configuration that concern the head alone."""
_MAX_TOKENS = 8_192
"""Slots of a batch through the encoder, were it padded: bounds the memory that all layers' outputs take."""
logger = logging.getLogger(__name__)
_REMEDY = "use a smaller model or shorter texts, or take a device with more memory"


@dataclass
class TokenBudget:
    """Number of padded tokens that a device computes at a time without learning; halved where its memory runs out."""

    max_padded_tokens: int = 16_384
    """Tokens at a time at most, were they padded; a window that is longer goes through alone."""

    def compute(
        self,
        lengths: NDArray[np.int64],
        batch_size: int,
        compute: Callable[[NDArray[np.int64]], None],
    ) -> None:
        """Compute something of all windows, as many at a time as fit, the longest first.

        Args:
            lengths: (W,) tokens of each window.
            batch_size: windows at a time at most.
            compute: called with the numbers of some windows, and again with fewer of them where memory ran out.

        Raises: RunFailedError where memory runs out with a single window.
        """
        order, start = np.argsort(-lengths, kind="stable"), 0
        while start < len(order):
            longest = int(lengths[order[start]])
            windows = order[start : start + max(1, min(batch_size, self.max_padded_tokens // longest))]
            try:
                compute(windows)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                reason = str(error)
            else:
                start += len(windows)
                continue
            # Outside of `except`, which holds on to the failed try's tensors.
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            check_can_shrink(len(windows), None, reason, _REMEDY)
            self.max_padded_tokens = len(windows) * longest // 2
            logger.warning(
                f"memory ran out while texts were answered, {len(windows):,} at a time of up to {longest:,} tokens "
                f"({first_line(reason)}); from here on {self.max_padded_tokens:,} tokens at a time"
            )


@torch.inference_mode()
def compute_logits(
    model: HeadModel,
    features: Features[Any],
    precision: AskedPrecision = "fp32",
    batch_size: int | None = None,
    budget: TokenBudget | None = None,
) -> NDArray[np.float32]:
    """The model's outputs without dropout: (W, C) for sequences, (W, 1) for choices, (T, C) for tokens.

    Args:
        batch_size: windows at a time at most; when left out, 64 on a CPU, and on a GPU as many as the budget takes.
        budget: of the device, as earlier calls left it; a new one when left out.

    Raises: RunFailedError where memory runs out with a single window.
    """
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    head = HEADS[features.head]
    rows = len(features.input_ids) if head.gives_token_outputs else features.num_windows
    logits: NDArray[np.float32] | None = None

    def store(windows: NDArray[np.int64], values: NDArray[np.float32]) -> None:
        nonlocal logits
        values = values.reshape(len(values), -1)
        if logits is None:
            logits = np.empty((rows, values.shape[1]), np.float32)
        logits[features.token_index(windows) if head.gives_token_outputs else windows] = values

    reads = AsyncReads(store)

    def compute(windows: NDArray[np.int64]) -> None:
        with autocast(device, precision):
            values = head.logits(model, make_batch(features, windows, device))
        reads.add(windows, values)

    # A GPU is done with 64 short windows at once: there the budget alone limits them.
    num_at_a_time = batch_size or (features.num_windows if device.type == "cuda" else _CPU_BATCH_SIZE)
    (budget or TokenBudget()).compute(features.lengths, num_at_a_time, compute)
    reads.finish()
    model.train(was_training)
    assert logits is not None, "a split has at least one example"
    return logits


def freeze(
    splits: Sequence[Features[A]],
    model: HeadModel,
    precision: AskedPrecision,
    cache: str,
) -> list[Features[A]]:
    """Splits with the outputs that the model's head reads, from the cache or computed and kept there.

    Feature-based use (Devlin et al. 2018, section 5.3): without dropout a token's outputs never change, and all trials
    of the same encoder find them on the storage; of a split's tokens only those stay that the head reads.
    """
    config = asdict(model.config.with_dropout(0.0))
    arithmetic = {name: value for name, value in config.items() if name not in _ABOVE}
    device = next(model.parameters()).device
    in_bf16 = computes_in_bf16(device, precision)
    place = [device.type, torch.get_num_threads()]  # both decide the last bits
    if device.type == "cuda":
        place.append(torch.get_float32_matmul_precision())
    encoder = [_STATES_VERSION, _digest(model), arithmetic, "bf16" if in_bf16 else "fp32", place]

    def freeze_one(features: Features[A]) -> Features[A]:
        reads_all = HEADS[features.head].tokens_read(model.config, features) is None
        parts = [features.fingerprint, *encoder, reads_all]
        key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        arrays_type = type(features.head_arrays)
        compute = partial(compute_states, features, model, precision, budget)
        return keep_features(cache, key, arrays_type, features.head, compute)

    budget = TokenBudget(_MAX_TOKENS)
    return [freeze_one(features) for features in splits]


@torch.inference_mode()
def compute_states(
    features: Features[A], model: HeadModel, precision: AskedPrecision = "fp32", budget: TokenBudget | None = None
) -> Features[A]:
    """Features of the tokens that the head reads, with the encoder's outputs for them."""
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
    bert = model.bert
    for part in (bert.embeddings, bert.convolution, bert.layers, bert.norm):
        for name, tensor in () if part is None else part.state_dict().items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
    return digest.hexdigest()
