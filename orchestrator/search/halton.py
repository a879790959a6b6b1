"""Quasi-random search: points of a scrambled Halton sequence, which cover a space more evenly than random ones.

Halton 1960, "On the efficiency of certain quasi-random sequences of points in evaluating multi-dimensional integrals":
coordinate j of point n is n written in the j-th prime base, its digits mirrored at the point. Owen 2017, "A randomized
Halton algorithm in R" (https://arxiv.org/abs/1706.02808): a random permutation for each base and digit place breaks the
patterns of large bases. Bousquet et al. 2017 (https://arxiv.org/abs/1706.03200) compare such points with random ones
for settings of neural networks. Differs from Owen in the number of digits: as many as a double holds.
"""

from collections.abc import Mapping
from functools import cached_property
from itertools import count, islice

from orchestrator.search.drawn import DrawnSearch

_FRACTION_BITS = 53
"""Bits of a double's fraction: with no more digits than fit into them a share stays below 1."""


class HaltonSearch(DrawnSearch):
    """Evenly spread points, a prime base for each axis; a draw depends on the seed and the axis's place in the spec."""

    def share(self, name: str, draw: int) -> float:
        digit_maps = self._digit_maps[name]
        base, mirrored = len(digit_maps[0]), 0
        for digit_map in digit_maps:
            draw, digit = divmod(draw, base)
            mirrored = mirrored * base + digit_map[digit]
        return float(mirrored / base ** len(digit_maps))

    @cached_property
    def _digit_maps(self) -> Mapping[str, list[list[int]]]:
        """Draw one permutation of the base's digits per digit place, the lowest place first, for each axis."""
        from bert_core.counter_random import derive_key, permutation  # specs import this module, and load no numpy

        return {
            name: [
                permutation(derive_key(self._seed, "halton", base, place), base).tolist()
                for place in range(_num_digits(base))
            ]
            for name, base in zip(self._space, _primes(len(self._space)), strict=True)
        }


def _num_digits(base: int) -> int:
    """The most digits for which base^digits is at most 2^53."""
    return next(digits for digits in count() if base ** (digits + 1) > 2**_FRACTION_BITS)


def _primes(number: int) -> list[int]:
    """List the first `number` primes."""
    primes = (n for n in count(2) if all(n % divisor for divisor in range(2, n)))
    return list(islice(primes, number))
