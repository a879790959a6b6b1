"""Micro-batches as the host has batches: to compare them, and to tell them apart by their digests."""

import numpy as np

from bert_core.examples.packing import PackedBatch
from orchestrator.pretraining.device_batch import MicroBatch


def on_host(micro: MicroBatch) -> PackedBatch:
    """The batch that a micro-batch was made of."""
    sequences, labels = micro.sequences, micro.labels
    return PackedBatch(
        sequences.input_ids.cpu().numpy().astype(np.int32),
        sequences.token_type_ids.cpu().numpy().astype(np.int8),
        sequences.cu_seqlens.cpu().numpy().astype(np.int32),
        labels.masked_positions.cpu().numpy().astype(np.int32),
        labels.masked_labels.cpu().numpy().astype(np.int32),
        labels.sentence_labels.cpu().numpy().astype(np.int8),
        labels.draws.cpu().numpy().astype(np.int32),
    )
