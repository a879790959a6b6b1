"""Teacher and student side by side: how often they say the same, how large they are, how fast."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from orchestrator.finetuning.batches import make_batch
from orchestrator.finetuning.heads import HEADS, HeadModel
from orchestrator.finetuning.logits import autocast, compute_logits
from orchestrator.pretraining.meter import clock_of
from orchestrator.specs.network import Precision
from orchestrator.tasks import Features
from orchestrator.training.batch_order import length_batches

_MAX_TIMED_WINDOWS = 1024
"""Windows that the speed is measured on at most, evenly spread over the split."""
_BATCH_SIZE = 32


def vector_agreement(student: HeadModel, teacher: HeadModel, features: Features[Any], precision: Precision) -> float:
    """The mean cosine of both's vectors of a text."""
    own, theirs = (
        torch.from_numpy(compute_logits(model, features, precision)) for model in (student, teacher)
    )  # (2N, H)
    return float(F.cosine_similarity(own, theirs, dim=-1).mean())


def compare_sizes(student: nn.Module, teacher: nn.Module) -> dict[str, float]:
    """`num_parameters` of both and the student's share of the teacher's, `parameter_ratio`."""
    own, theirs = (float(sum(p.numel() for p in model.parameters())) for model in (student, teacher))
    return {"num_parameters": own, "teacher.num_parameters": theirs, "parameter_ratio": own / theirs}


@torch.inference_mode()
def compare_speeds(
    student: HeadModel, teacher: HeadModel, features: Features[Any], precision: Precision
) -> dict[str, float]:
    """`examples_per_s` of both, and how many times as fast the student is, `speed_ratio`.

    Both go over the same batches in turn, so that what else the machine does slows both; the first batch, once over
    by each, warms up. Inputs that are split into several windows count once for each.
    """
    seconds = dict.fromkeys((student, teacher), 0.0)
    num_windows = min(features.num_windows, _MAX_TIMED_WINDOWS)
    some = np.linspace(0, features.num_windows - 1, num_windows).astype(np.int64)
    batches = [some[places] for places in length_batches(features.lengths[some], _BATCH_SIZE)]
    for model in seconds:
        _seconds(model, features, batches[0], precision)
    for batch in batches:
        for model in seconds:
            seconds[model] += _seconds(model, features, batch, precision)
    own, theirs = num_windows / seconds[student], num_windows / seconds[teacher]
    return {"examples_per_s": own, "teacher.examples_per_s": theirs, "speed_ratio": own / theirs}


def _seconds(model: HeadModel, features: Features[Any], windows: np.ndarray, precision: Precision) -> float:
    model.eval()
    device = next(model.parameters()).device
    batch, clock = make_batch(features, windows, device), clock_of(device)
    clock.wait()  # for the copy of the batch, too
    begun = clock.mark()
    with autocast(device, precision):
        HEADS[features.head].logits(model, batch)
    return clock.seconds_between(begun, clock.mark())
