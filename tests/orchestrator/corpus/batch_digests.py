"""Digests of batches, by which tests compare them."""

import hashlib
from collections.abc import Iterable

from bert_core.examples.packing import PackedBatch


def digests(batches: Iterable[tuple[int, PackedBatch]]) -> list[str]:
    """One digest for each batch, over all its arrays."""
    names = PackedBatch.__dataclass_fields__
    return [
        hashlib.sha256(b"".join(getattr(batch, name).tobytes() for name in names)).hexdigest() for _, batch in batches
    ]
