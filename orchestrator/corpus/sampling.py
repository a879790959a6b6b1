"""Sampling of a corpus's languages with a smoothing exponent, so that small ones are seen more often.

Devlin et al. (2018, the multilingual README: "exponentially smoothed weighting", exponent 0.7) and Conneau and Lample
(2019, section 3.1): a language with the share p_i of the text is sampled with q_i = p_i^a / Σ_j p_j^a. They draw
sentences during training, and p_i counts those. Here p_i counts stored bytes, and a document of language i is read
q_i / p_i times on average when the corpus is read: as often as the whole number below, and once more if a hash of its
text says so. So the corpus keeps its size, copies of a document stay together in training or in validation, and the
numbering of examples does not depend on languages.
"""

import hashlib
from collections.abc import Sequence


def mean_copies(num_bytes: Sequence[int], exponent: float) -> list[float]:
    """Average number of times that each language's documents are read: q_i / p_i, 1 for a language without text."""
    total = sum(num_bytes)
    if exponent == 1 or not total:
        return [1.0] * len(num_bytes)
    shares = [size / total for size in num_bytes]
    norm = sum(share**exponent for share in shares if share)
    return [share ** (exponent - 1) / norm if share else 1.0 for share in shares]


def num_copies(text: str, mean: float) -> int:
    """Number of times that this document is read."""
    if mean == 1.0:
        return 1
    digest = hashlib.blake2b(text.encode(), digest_size=8, person=b"sampling").digest()
    return int(mean + int.from_bytes(digest, "big") / 2**64)
