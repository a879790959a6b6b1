"""Windows of a split as one packed batch, without padding, or as the parts of one."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bert_core.device_copies import copy_together
from bert_core.packed_sequences import PackedSequences
from orchestrator.finetuning.heads import HEADS, Batch, HeadModel
from orchestrator.finetuning.heads.base import Part, Windows
from orchestrator.tasks.features import Array, Features


def make_batch(features: Features[Any], windows: Windows, device: torch.device) -> Batch:
    """Some windows, whole groups of them, with the targets of their head."""
    head, tokens, lengths = HEADS[features.head], features.token_index(windows), features.lengths[windows]
    seqs = PackedSequences.from_numpy(
        features.input_ids[tokens], features.token_type_ids[tokens], np.concatenate([[0], np.cumsum(lengths)])
    )
    seqs = replace(seqs, host_lengths=lengths)
    tabular_features, targets = features.head_arrays.tabular_features, head.targets(features, windows, tokens)
    own, beside = seqs.tensors(), {"targets": _as_tensor(targets)}
    if tabular_features is not None:
        beside["tabular_features"] = torch.from_numpy(tabular_features[features.example_index[windows]])
    if features.states is not None:
        beside["states"] = torch.from_numpy(features.states[tokens])
    starts = np.flatnonzero(features.begins_group(windows))
    if len(starts) < len(windows):
        beside["group_sizes"] = torch.from_numpy(np.diff(starts, append=len(windows)))
    moved = copy_together(own | beside, device)
    on_device = seqs.with_tensors({name: moved[name] for name in own})
    group_sizes, numbers, states = (moved.get(name) for name in ("group_sizes", "tabular_features", "states"))
    return Batch(on_device, moved["targets"], targets, features, windows, group_sizes, numbers, states)


def make_parts(
    model: HeadModel, features: Features[Any], parts: Sequence[Windows], logits: Tensor | None = None
) -> Iterator[Batch]:
    """Yield the parts of a step's batch on the model's device, each made when its turn comes; one alone is the batch.

    Args:
        parts: windows of each part, whole groups of them.
        logits: of all parts, where the loss compares their examples with one another.
    """
    whole, device = np.concatenate(parts), next(model.parameters()).device
    for windows in parts:
        batch = make_batch(features, windows, device)
        yield batch if len(parts) == 1 else replace(batch, part=make_part(model, features, windows, whole, logits))


def make_part(
    model: HeadModel,
    features: Features[Any],
    windows: Windows,
    whole: Windows,
    logits: Tensor | None = None,
) -> Part:
    """Make the place of some windows in a whole batch; `logits` are the whole one's, as for `make_parts`."""
    count = HEADS[features.head].count_labels
    num_labels, num_in_whole = (count(model, _targets(features, some)) for some in (windows, whole))
    # A whole without labels is as undefined in parts as in one.
    share = num_labels / num_in_whole if num_in_whole else 1.0
    targets = None
    if logits is not None:
        targets = copy_together({"targets": _as_tensor(_targets(features, whole))}, logits.device)["targets"]
    return Part(whole, share, logits, targets)


def _targets(features: Features[Any], windows: Windows) -> Array:
    return HEADS[features.head].targets(features, windows, features.token_index(windows))


def _as_tensor(targets: Array) -> Tensor:
    dtype = torch.float32 if targets.dtype.kind == "f" else torch.int64
    return torch.from_numpy(np.ascontiguousarray(targets)).to(dtype)
