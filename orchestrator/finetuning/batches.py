"""Windows of a split as one packed batch, without padding."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bert_core.packed_sequences import PackedSequences
from orchestrator.finetuning.heads import HEADS, Batch
from orchestrator.tasks import Features


def make_batch(features: Features[Any], windows: NDArray[np.int64], device: torch.device) -> Batch:
    """Some windows, whole groups of them, with the targets of their head."""
    head, tokens, lengths = HEADS[features.head], features.token_index(windows), features.lengths[windows]
    seqs = PackedSequences.from_numpy(
        features.input_ids[tokens], features.token_type_ids[tokens], np.concatenate([[0], np.cumsum(lengths)])
    )
    states = None if features.states is None else torch.from_numpy(features.states[tokens])
    seqs = replace(seqs, frozen_states=states, host_lengths=lengths)
    targets = head.targets(features, windows, tokens)
    tabular_features = head.tabular_features(features, windows)
    return Batch(
        seqs.to(device),
        torch.from_numpy(np.ascontiguousarray(targets)).to(
            device, torch.float32 if targets.dtype.kind == "f" else torch.int64, non_blocking=True
        ),
        windows,
        None if tabular_features is None else torch.from_numpy(tabular_features).to(device, non_blocking=True),
    )
