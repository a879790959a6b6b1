"""Digests of batches: SHA-256 over tokens, segments, masked positions and labels, example by example. No torch.

A batch's digest is that of its examples' digests, in their order. So it does not depend on how workers share the batch.
"""

import hashlib
from collections.abc import Iterable, Iterator

import numpy as np

from bert_core.examples.packing import PackedBatch
from orchestrator.corpus.stream import ExampleStream


def example_digests(batch: PackedBatch) -> Iterator[str]:
    """Yield the digest of each example of a batch, as 64 hexadecimal digits."""
    for example in batch.split(1):
        digest = hashlib.sha256()
        for name in PackedBatch.__dataclass_fields__:
            values = np.asarray(getattr(example, name), "<i8")  # data tasks and plain streams differ in widths
            digest.update(len(values).to_bytes(8, "little") + values.tobytes())
        yield digest.hexdigest()


def combine_digests(digests: Iterable[str]) -> str:
    """Return the digest of a batch from those of its examples, or of consecutive batches from theirs."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def global_batch_digest(stream: ExampleStream, step: int) -> str:
    """Return the digest of a step's batch over all workers, which is built for it; steps count from 0."""
    return combine_digests(
        digest for _, batch in stream.batches(range(step, step + 1)) for digest in example_digests(batch)
    )
