"""Size of a vocabulary that some text can teach."""

import math

_SMALLEST = 500
_LARGEST = 30_000
_PER_ROOT_WORD = 8


def vocabulary_size(num_words: float) -> int:
    """Entries of a vocabulary for a text of so many words: eight times the root of their number, in round numbers.

    The number of different words of a text grows with about the root of its length (Heaps 1978), and an entry is
    learned only where it occurs often. The trainer stops earlier where nothing occurs twice.

    >>> vocabulary_size(1_000), vocabulary_size(160_000), vocabulary_size(1e9)
    (500, 3000, 30000)
    """
    wanted = _PER_ROOT_WORD * math.sqrt(num_words)
    rounded = 500 * round(wanted / 500) if wanted < 10_000 else 2000 * round(wanted / 2000)
    return min(_LARGEST, max(_SMALLEST, rounded))
