"""Comparison of two groups over their seeds: tests that are made once, and of which one speaks.

Which one speaks follows from the numbers of seeds and of comparisons and from whether seeds show noise, never from
what the tests say:

    six or more seeds in common     paired permutation: it needs six pairs to be able to find anything at 95 %, and
                                    seven to eleven where two to fifty comparisons are corrected for
    fewer, two or more on each side Welch's test over all seeds of both
    one seed on a side              none: the noise of seeds is not known, and only examples can speak
    a side's scores all equal       no Welch's test, which would take any difference for certain
    both sides' scores all equal    none at all, likewise
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import stdev

from orchestrator.registry.groups.group_records import GroupRecord
from orchestrator.significance.comparison import (
    WelchResult,
    compare_means,
    least_p_value,
    pairs_of_seeds,
    seeds_of_each_group,
)
from orchestrator.significance.resampling import (
    PairedResult,
    bootstrap_interval,
    compare_pairs,
    paired_bootstrap_interval,
)
from orchestrator.significance.summary import LEVEL, Interval, has_spread


@dataclass(frozen=True)
class SeedComparison:
    """Difference of two groups over their seeds, the first one's mean minus the second one's."""

    test: str
    """Test that speaks, in words; empty where the noise of seeds is not known."""
    difference: float
    interval: Interval | None
    p_value: float | None
    num_first: int
    num_second: int
    num_common: int
    """Number of seeds that both have."""
    paired: PairedResult | None
    """Permutation test over the seeds in common; None where there are fewer than two."""
    welch: WelchResult
    bootstrap: Interval | None
    """Bootstrap interval, over common seeds where these speak; None where the noise of seeds is not known."""
    num_seeds_needed: int | None
    """Number of seeds of each group that would settle a difference of this size; None where no number would."""


@dataclass(frozen=True)
class SeedTests:
    """Tests of two groups over their seeds, whichever of them will speak."""

    first: GroupRecord
    second: GroupRecord
    differences: list[float]
    """Differences of the scores of seeds in common, in the order of the seeds."""
    shows_noise: bool
    """Whether the seeds in common do not all score the same on both sides."""
    paired: PairedResult | None
    welch: WelchResult

    def speaking(self, num_comparisons: int = 1) -> tuple[str, PairedResult | WelchResult]:
        """Return the test that speaks, its name first; the name is empty where the noise of seeds is not known.

        Args:
            num_comparisons: number of comparisons that are made at once and corrected for.
        """
        num_common = len(self.differences)
        finds_something = least_p_value(num_common) < 1 - _level(num_comparisons)
        if self.paired is not None and self.shows_noise and finds_something:
            return f"paired permutation over {num_common} common seeds", self.paired
        sizes = f"{len(self.first.seeds)} and {len(self.second.seeds)} seeds"
        return "" if self.welch.p_value is None else f"Welch's test over {sizes}", self.welch

    def comparison(self, num_comparisons: int = 1) -> SeedComparison:
        """Return the comparison by the test that speaks among so many comparisons, with its bootstrap."""
        test, result = self.speaking(num_comparisons)
        level = _level(num_comparisons)
        bootstrap, num_seeds_needed = None, None
        if result is self.paired:
            bootstrap = paired_bootstrap_interval(self.differences)
            num_seeds_needed = pairs_of_seeds(result.difference, stdev(self.differences), level)
        elif test:
            bootstrap = bootstrap_interval(self.first.scores, self.second.scores)
            spreads = [group.summary.sd or 0.0 if group.summary else 0.0 for group in (self.first, self.second)]
            num_seeds_needed = seeds_of_each_group(result.difference, spreads[0], spreads[1], level)
        return SeedComparison(
            test,
            result.difference,
            result.interval,
            result.p_value,
            num_first=len(self.first.seeds),
            num_second=len(self.second.seeds),
            num_common=len(self.differences),
            paired=self.paired,
            welch=self.welch,
            bootstrap=bootstrap,
            num_seeds_needed=num_seeds_needed,
        )


def _level(num_comparisons: int) -> float:
    """Level of the first of Holm's steps."""
    return 1 - (1 - LEVEL) / num_comparisons


def compare_seeds(first: GroupRecord, second: GroupRecord) -> SeedTests:
    """Test the difference of two groups over their seeds."""
    one, other = ({seed.seed: seed.score for seed in group.seeds} for group in (first, second))
    common = sorted(seed for seed in one.keys() & other.keys() if seed is not None)
    differences = [one[seed] - other[seed] for seed in common]
    return SeedTests(
        first,
        second,
        differences,
        shows_noise=any(has_spread([scores[seed] for seed in common]) for scores in (one, other) if common),
        paired=compare_pairs(differences) if len(common) > 1 else None,
        welch=compare_means(first.scores, second.scores),
    )
