"""A head's outputs for a whole split, in the split's own order.

Shapes: W windows, T tokens, C classes.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bert_core.device_copies import AsyncReads
from orchestrator.finetuning.batches import make_batch
from orchestrator.finetuning.heads import HEADS, HeadModel
from orchestrator.finetuning.scoring_room import ScoringRoom
from orchestrator.specs.network import Precision
from orchestrator.tasks import Features

_CPU_BATCH_SIZE = 64


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    """bf16 arithmetic around a forward pass, or none."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


@torch.inference_mode()
def compute_logits(
    model: HeadModel,
    features: Features[Any],
    precision: Precision = "fp32",
    batch_size: int | None = None,
    allocate: Callable[[tuple[int, int], type[np.float32]], NDArray[np.float32]] = np.empty,
    room: ScoringRoom | None = None,
) -> NDArray[np.float32]:
    """The model's outputs without dropout: (W, C) for sequences, (W, 1) for choices, (T, C) for tokens.

    Args:
        batch_size: windows at a time at most; when left out, 64 on a CPU, and on a GPU as many as the room takes.
        allocate: gives the array that is filled, from its shape and type; in memory when left out.
        room: of the device; one of this call alone when left out.

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
            logits = allocate((rows, values.shape[1]), np.float32)
        logits[features.token_index(windows) if head.gives_token_outputs else windows] = values

    reads = AsyncReads(store)

    def compute(windows: NDArray[np.int64]) -> None:
        with autocast(device, precision):
            values = head.logits(model, make_batch(features, windows, device))
        reads.add(windows, values)

    num_at_a_time = batch_size or _windows_at_a_time(device, features.num_windows)
    (room or ScoringRoom()).compute(features.lengths, num_at_a_time, compute)
    reads.finish()
    model.train(was_training)
    assert logits is not None, "a split has at least one example"
    return logits


def _windows_at_a_time(device: torch.device, num_windows: int) -> int:
    """Number of windows that are computed at a time where nobody says one; a GPU is done with 64 short ones at once."""
    return num_windows if device.type == "cuda" else _CPU_BATCH_SIZE
