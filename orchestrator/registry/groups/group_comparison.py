"""Comparison of groups: whether their difference is more than luck, over seeds and over the examples they answered.

Over seeds, which test speaks follows from the numbers of seeds and of comparisons and from whether seeds show noise,
never from what the tests say:

    six or more seeds in common     paired permutation: it needs six pairs to be able to find anything at 95 %, and
                                    seven to eleven where two to fifty comparisons are corrected for
    fewer, two or more on each side Welch's test over all seeds of both
    one seed on a side              none: the noise of seeds is not known, and only examples can speak
    a side's scores all equal       no Welch's test, which would take any difference for certain
    both sides' scores all equal    none at all, likewise
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import stdev
from typing import Any

from orchestrator.errors import InputError
from orchestrator.registry.groups.comparison_words import in_words, p_text
from orchestrator.registry.groups.example_comparison import ExampleComparison
from orchestrator.registry.groups.group_records import GroupRecord
from orchestrator.registry.groups.varying_paths import varying_paths
from orchestrator.significance.bootstrap import bootstrap_interval, paired_bootstrap_interval
from orchestrator.significance.many_comparisons import holm
from orchestrator.significance.paired_permutation import PairedResult, compare_pairs, least_p_value
from orchestrator.significance.sample_size import pairs_of_seeds, seeds_of_each_group
from orchestrator.significance.summary import LEVEL, Interval, has_spread
from orchestrator.significance.welch import WelchResult, compare_means


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
class Comparison:
    """Comparison of two groups."""

    first: GroupRecord
    second: GroupRecord
    seeds: SeedComparison
    examples: ExampleComparison | None
    """Comparison over the examples that runs of both answered; None where no predictions of the same ones are kept,
    or these do not give the score."""
    differs_in: Mapping[str, tuple[Any, Any]]
    """Values in which the groups differ, by path."""
    corrected_p_value: float | None
    """p-value, corrected by Holm's method for all the comparisons that were asked for at once."""
    num_comparisons: int = 1
    test_alone: str = ""
    """Test that finds the difference to be more than luck where nothing else is asked, with its p-value; else empty."""

    @property
    def p_value(self) -> float | None:
        """p-value of what speaks: the test over seeds, or where there is none, that over examples."""
        if self.seeds.p_value is not None:
            return self.seeds.p_value
        return self.examples.p_value if self.examples else None

    @property
    def is_distinguishable(self) -> bool | None:
        """Whether the groups differ by more than luck; None where nothing can tell."""
        return None if self.corrected_p_value is None else self.corrected_p_value < 1 - LEVEL

    @property
    def words(self) -> str:
        """The answer in one sentence."""
        return in_words(self)


def compare_groups(
    groups: Sequence[GroupRecord], examples: Mapping[tuple[int, int], ExampleComparison | None]
) -> list[Comparison]:
    """Compare each two of some groups, and correct for their number.

    Args:
        examples: comparison over examples of each two groups, by their places.

    Raises: InputError where groups cannot be compared.
    """
    pairs = [
        (groups[one], groups[other], examples.get((one, other))) for one, other in combinations(range(len(groups)), 2)
    ]
    alone = [_compare(*pair) for pair in pairs]
    num_telling = sum(comparison.p_value is not None for comparison in alone)
    found = alone if num_telling < 2 else [_compare(*pair, num_telling) for pair in pairs]
    known = [comparison.p_value for comparison in found if comparison.p_value is not None]
    corrected = iter(holm(known))
    return [
        replace(
            comparison,
            corrected_p_value=None if comparison.p_value is None else next(corrected),
            num_comparisons=len(known) or 1,
            test_alone=_telling_test(by_itself),
        )
        for comparison, by_itself in zip(found, alone, strict=True)
    ]


def _telling_test(comparison: Comparison) -> str:
    if comparison.p_value is None or comparison.p_value >= 1 - LEVEL:
        return ""
    speaks = comparison.seeds if comparison.seeds.p_value is not None else comparison.examples
    return f"{speaks.test} (p = {p_text(comparison.p_value)})" if speaks else ""


def check_comparable(groups: Sequence[GroupRecord]) -> None:
    """Check that groups are scored alike. Raises: InputError."""
    first = groups[0]
    for group in groups:
        for what, one, other in (
            ("task", first.task, group.task),
            ("score", first.metric, group.metric),
            ("split", first.split, group.split),
            ("data", first.data, group.data),
        ):
            if one != other:
                raise InputError(
                    f"groups {first.label} and {group.label} cannot be compared: the {what} of one is {one}, of "
                    f"the other {other}; score both models on the same data: orchestrator evaluate MODEL TASK"
                )
        if not group.seeds:
            why = group.refusal or "no run of it completed with a score"
            raise InputError(f"group {group.label} cannot be compared: {why}")


def _compare(
    first: GroupRecord, second: GroupRecord, examples: ExampleComparison | None, num_comparisons: int = 1
) -> Comparison:
    check_comparable([first, second])
    told = [{**group.parameters, "code": group.code_version} for group in (first, second)]
    differs_in = {path: (told[0].get(path), told[1].get(path)) for path in sorted(varying_paths(told))}
    return Comparison(first, second, compare_seeds(first, second, num_comparisons), examples, differs_in, None)


def compare_seeds(first: GroupRecord, second: GroupRecord, num_comparisons: int = 1) -> SeedComparison:
    """Compare two groups over their seeds, as the head of this file says.

    Args:
        num_comparisons: number of comparisons that are made at once and corrected for.
    """
    level = 1 - (1 - LEVEL) / num_comparisons  # of the first of Holm's steps
    one, other = ({seed.seed: seed.score for seed in group.seeds} for group in (first, second))
    common = sorted(seed for seed in one.keys() & other.keys() if seed is not None)
    differences = [one[seed] - other[seed] for seed in common]
    welch = compare_means(first.scores, second.scores)
    paired = compare_pairs(differences) if len(common) > 1 else None
    counted = {"num_first": len(one), "num_second": len(other), "num_common": len(common)}
    shows_noise = any(has_spread([scores[seed] for seed in common]) for scores in (one, other) if common)
    if paired is not None and least_p_value(len(common)) < 1 - level and shows_noise:
        return SeedComparison(
            f"paired permutation over {len(common)} common seeds",
            paired.difference,
            paired.interval,
            paired.p_value,
            **counted,
            paired=paired,
            welch=welch,
            bootstrap=paired_bootstrap_interval(differences),
            num_seeds_needed=pairs_of_seeds(paired.difference, stdev(differences), level),
        )
    is_testable = welch.p_value is not None
    return SeedComparison(
        f"Welch's test over {len(one)} and {len(other)} seeds" if is_testable else "",
        welch.difference,
        welch.interval,
        welch.p_value,
        **counted,
        paired=paired,
        welch=welch,
        bootstrap=bootstrap_interval(first.scores, second.scores) if is_testable else None,
        num_seeds_needed=_seeds_needed(first, second, welch.difference, level) if is_testable else None,
    )


def _seeds_needed(first: GroupRecord, second: GroupRecord, difference: float, level: float) -> int | None:
    spreads = [group.summary.sd or 0.0 if group.summary else 0.0 for group in (first, second)]
    return seeds_of_each_group(difference, spreads[0], spreads[1], level)
