"""Random numbers that are a function of a key and a counter, so that each can be computed without the ones before it.

SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"): output n of the generator
with state `key` is mix(key + (n + 1)·γ). Whole arrays at once, the same on every platform, no state to save.
"""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def derive_key(seed: int, *labels: int | str) -> int:
    """Derive a 64-bit key for one purpose: a hash of the seed and of labels that say what the numbers are for.

    >>> derive_key(1, "order", 0) == derive_key(1, "order", 0) != derive_key(1, "order", 1)
    True
    """
    text = "\0".join([str(seed), *(f"{type(label).__name__}:{label}" for label in labels)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def random_bits(key: int | NDArray[np.uint64], counters: ArrayLike) -> NDArray[np.uint64]:
    """Draw 64 random bits for each counter; `key` is one key or an array of keys that broadcasts with `counters`."""
    with np.errstate(over="ignore"):  # numpy warns of wrapping in scalars, which is what is wanted
        bits = (np.asarray(counters).astype(np.uint64) + np.uint64(1)) * _GAMMA + np.asarray(key, dtype=np.uint64)
        bits ^= bits >> np.uint64(30)
        bits *= _MIX_1
        bits ^= bits >> np.uint64(27)
        bits *= _MIX_2
        bits ^= bits >> np.uint64(31)
    return bits


def uniform(key: int | NDArray[np.uint64], counters: ArrayLike) -> NDArray[np.float64]:
    """Draw a number in [0, 1) for each counter, with 53 random bits."""
    return (random_bits(key, counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def integers(key: int | NDArray[np.uint64], counters: ArrayLike, high: ArrayLike) -> NDArray[np.int64]:
    """Draw a whole number in [0, high) for each counter; `high` < 2³² broadcasts. Its bias is below high / 2³²."""
    top = random_bits(key, counters) >> np.uint64(32)
    scaled: NDArray[Any] = (top * np.asarray(high).astype(np.uint64)) >> np.uint64(32)
    return scaled.astype(np.int64)


def permutation(key: int, size: int) -> NDArray[np.int64]:
    return np.argsort(random_bits(key, np.arange(size, dtype=np.uint64)), kind="stable")
