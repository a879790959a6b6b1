"""Difference between two groups of trials beside the noise of their seeds, in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.significance.comparison import compare_means, seeds_of_each_group
from orchestrator.significance.summary import ONE_SEED, mean_interval, sample_variance, why_noise_is_unknown


@dataclass(frozen=True)
class Difference:
    """Difference of two means, the first one's minus the second one's."""

    value: float
    half_width: float | None
    """Half of its 95 % interval; None where the seeds do not show how much they matter."""
    num_seeds_needed: int | None = None
    """Number of seeds of each group that would settle a difference of this size, where it is known."""
    why_unknown: str = ""
    """Words on why there is no interval."""

    @property
    def is_more_than_noise(self) -> bool | None:
        """Whether the interval leaves out zero; None where there is no interval."""
        return None if self.half_width is None else abs(self.value) > self.half_width

    def words(self, several_seeds: str) -> str:
        """Text of the difference, and of what it says.

        Args:
            several_seeds: override that has each recipe trained with several seeds, for a person who has one seed only.
        """
        if self.half_width is None:
            remedy = f"; several show it: {several_seeds}" if self.why_unknown == ONE_SEED else ""
            return f"{self.value:+.4f}; {self.why_unknown}: seed noise not known{remedy}"
        told = f"{self.value:+.4f} ± {self.half_width:.4f} (95 %)"
        if self.is_more_than_noise:
            return f"{told}, more than seed noise"
        needed = f"; about {self.num_seeds_needed} seeds each would settle it" if self.num_seeds_needed else ""
        return f"{told}, not more than seed noise{needed}"


def compute_difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Compare the scores of two groups, a score for each seed, by Welch's interval."""
    found = compare_means(first, second)
    if found.interval is None:
        return Difference(found.difference, None, why_unknown=why_noise_is_unknown(first, second))
    spreads = [math.sqrt(sample_variance(scores)) for scores in (first, second)]
    return Difference(found.difference, found.interval.half_width, seeds_of_each_group(found.difference, *spreads))


def compute_gain(scores: Sequence[float], constant: float) -> Difference:
    """Compare a group's scores with a score that has no noise of its own, by Student's interval of their mean."""
    value = sum(scores) / len(scores) - constant
    interval = mean_interval(scores)
    if interval is None:
        return Difference(value, None, why_unknown=why_noise_is_unknown(scores))
    return Difference(value, interval.half_width)
