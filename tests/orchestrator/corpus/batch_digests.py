"""Digests of batches, so that a test compares every array bit for bit."""

import hashlib

from bert_core.examples.packing import PackedBatch


def digests(batches: list[tuple[int, PackedBatch]]) -> list[str]:
    """One digest per batch, over all its arrays."""
    names = PackedBatch.__dataclass_fields__
    return [
        hashlib.sha256(b"".join(getattr(batch, name).tobytes() for name in names)).hexdigest() for _, batch in batches
    ]
