"""Comparison of groups: whether their difference is more than luck, over seeds and over the examples they answered.

Which test over seeds speaks follows from the numbers of seeds and of comparisons and from whether seeds show noise,
never from what the tests say:

    six or more seeds in common     paired permutation: it needs six pairs to be able to find anything at 95 %, and
                                    seven to eleven where two to fifty comparisons are corrected for
    fewer, two or more on each side Welch's test over all seeds of both
    one seed on a side              none: the noise of seeds is not known, and only examples can speak
    a side's scores all equal       no Welch's test, which would take any difference for certain
    both sides' scores all equal    none at all, likewise
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import stdev
from typing import Any

from orchestrator.errors import InputError
from orchestrator.measurements import is_better_lower
from orchestrator.registry.group_records import GroupRecord
from orchestrator.registry.kept_predictions import ExampleComparison, compare_examples
from orchestrator.registry.parameters import varying_paths
from orchestrator.significance.comparison import (
    POWER,
    DifferenceResult,
    McNemarResult,
    compare_means,
    holm,
    least_p_value,
    pairs_of_seeds,
    seeds_of_each_group,
)
from orchestrator.significance.resampling import bootstrap_interval, compare_pairs
from orchestrator.significance.summary import LEVEL, Interval, has_spread, why_noise_is_unknown


@dataclass(frozen=True)
class Comparison:
    """Comparison of two groups by their scores, the first one's minus the second one's."""

    first: GroupRecord
    second: GroupRecord
    num_comparisons: int
    """Number of comparisons, made at once, that can tell anything: p-values are corrected for so many."""
    differences: Sequence[float]
    """Differences of the scores of common seeds, in the order of the seeds."""
    paired: DifferenceResult | None
    """Permutation test over the common seeds; None where there are fewer than two."""
    welch: DifferenceResult
    """Welch's test over all seeds."""
    of_seeds: DifferenceResult
    """One of these, by the rule above; it has no p-value where the noise of seeds is not known."""
    examples: ExampleComparison | None
    """Comparison over the examples that runs of both answered; None where no predictions of the same ones are kept,
    or these do not give the score."""
    result: DifferenceResult | McNemarResult
    """Result of the test that speaks: over seeds, or where these show no noise, over examples."""
    test: str
    """Test that speaks, in words; empty where the noise of seeds is not known, and nothing else tells."""
    num_seeds_needed: int | None
    """Number of seeds of each group that would settle a difference of this size; None where no number would."""
    corrected_p_value: float | None = None
    """p-value, corrected by Holm's method for all the comparisons that were asked for at once."""

    @property
    def p_value(self) -> float | None:
        return self.result.p_value

    @property
    def is_distinguishable(self) -> bool | None:
        """Whether the groups differ by more than luck; None where nothing can tell."""
        return None if self.corrected_p_value is None else self.corrected_p_value < 1 - LEVEL

    @property
    def bootstrap(self) -> Interval | None:
        """Bootstrap interval, over common seeds where these speak; None where the noise of seeds is not known."""
        if self.of_seeds is self.paired:
            return bootstrap_interval(self.differences, [0.0])
        known = self.of_seeds.p_value is not None
        return bootstrap_interval(self.first.scores, self.second.scores) if known else None

    @property
    def differs_in(self) -> Mapping[str, tuple[Any, Any]]:
        """Values in which the groups differ, by path."""
        one, other = ({**group.parameters, "code": group.code_version} for group in (self.first, self.second))
        return {path: (one.get(path), other.get(path)) for path in sorted(varying_paths([one, other]))}

    @property
    def words(self) -> str:
        """The answer in one sentence: whether the groups differ, by what, and how many seeds would settle it."""
        metric, result, corrected = self.first.metric, self.result, self.corrected_p_value
        is_known = self.of_seeds.p_value is not None
        why = "" if is_known else why_noise_is_unknown(self.first.scores, self.second.scores)
        facts = f"difference {_amount(metric, result.difference)}"
        if result.p_value is None or corrected is None:
            return (
                f"nothing can tell: {facts} cannot be held against the noise of seeds ({why}), and no predictions "
                f"of the same examples are kept that tell of {metric}; run further seeds"
            )
        low, high = result.interval or (math.nan, math.nan)
        facts += f", 95 % interval {_amount(metric, low, unit='')} to {_amount(metric, high)}"
        facts += f", p = {_p_text(result.p_value)} ({self.test})"
        if self.num_comparisons > 1:
            facts += f"; corrected for {self.num_comparisons} comparisons (Holm): p = {_p_text(corrected)}"
        if not is_known:
            models = "these two models are" if self.is_distinguishable else "not even these two models are"
            return f"{models} distinguishable: {facts}; {why}: whether further seeds would say so is not known"
        if self.is_distinguishable:
            is_first = (result.difference > 0) != is_better_lower(metric)
            return f"distinguishable: {'the first' if is_first else 'the second'} is better, {facts}"
        among = f" among {self.num_comparisons} comparisons" if self.num_comparisons > 1 else ""
        needed = self.num_seeds_needed
        further = f"about {needed} seeds each would settle a difference of this size"
        if needed is None:
            further = "no number of seeds settles so small a difference"
        elif needed <= min(len(self.first.seeds), len(self.second.seeds)):
            further = f"{needed} seeds each find a difference of this size {POWER:.0%} of the time"
        return f"not distinguishable{among}: {facts}; {further}"


def _compare(
    first: GroupRecord, second: GroupRecord, examples: ExampleComparison | None, num_comparisons: int = 1
) -> Comparison:
    """Compare two groups by the test that speaks."""
    one, other = ({seed.seed: seed.score for seed in group.seeds} for group in (first, second))
    common = [(one[seed], other[seed]) for seed in one if seed in other and seed is not None]
    differences = [score - other_score for score, other_score in common]
    paired = compare_pairs(differences) if len(common) > 1 else None
    welch = of_seeds = compare_means(first.scores, second.scores)
    level = 1 - (1 - LEVEL) / num_comparisons  # of the first of Holm's steps
    result: DifferenceResult | McNemarResult = welch
    test, num_needed = "", None
    shows_noise = any(map(has_spread, zip(*common, strict=True)))
    if paired is not None and shows_noise and least_p_value(len(common)) < 1 - level:
        result = of_seeds = paired
        test = f"paired permutation over {len(common)} common seeds"
        num_needed = pairs_of_seeds(paired.difference, stdev(differences), level)
    elif welch.p_value is not None:
        test = f"Welch's test over {len(first.seeds)} and {len(second.seeds)} seeds"
        num_needed = seeds_of_each_group(welch.difference, stdev(first.scores), stdev(second.scores), level)
    elif examples is not None:
        result, test = examples.result, examples.test
    return Comparison(
        first, second, num_comparisons, differences, paired, welch, of_seeds, examples, result, test, num_needed
    )


def compare_groups(names: Sequence[str], groups: Sequence[GroupRecord]) -> list[Comparison]:
    """Compare each two of the groups that names stand for, as `Registry.compare` describes it."""
    if len(groups) < 2:
        raise InputError("name at least two groups, runs or trials to compare")
    for (one, first), (other, second) in combinations(zip(names, groups, strict=True), 2):
        if [run.id for run in first.runs] == [run.id for run in second.runs]:
            raise InputError(f"{one} and {other} are the same runs; name different ones")
    first = groups[0]
    for group in groups:
        for field in ("task", "metric", "split", "data"):
            its, wanted = getattr(group, field), getattr(first, field)
            if its != wanted:
                raise InputError(
                    f"groups {first.label} and {group.label} cannot be compared: the {field} of one is {wanted}, of "
                    f"the other {its}; score both models on the same data by runs of a spec with `kind: evaluate`"
                )
        if not group.seeds:
            why = group.refusal or "no run of it completed with a score"
            raise InputError(f"group {group.label} cannot be compared: {why}")
    alone = [_compare(first, second, compare_examples(first, second)) for first, second in combinations(groups, 2)]
    num_telling = max(1, sum(one.p_value is not None for one in alone))
    found = [_compare(one.first, one.second, one.examples, num_telling) for one in alone]
    corrected = iter(holm([one.p_value for one in found if one.p_value is not None]))
    return [one if one.p_value is None else replace(one, corrected_p_value=next(corrected)) for one in found]


def _amount(metric: str, value: float, unit: str = " points") -> str:
    """Text of a difference: of scores, which are fractions, in points of a hundred."""
    if is_better_lower(metric):
        return f"{value:.4g}"
    decimals = 1 if abs(value) >= 0.001 or not value else 1 - math.floor(math.log10(100 * abs(value)))
    return f"{100 * value:.{min(decimals, 4)}f}{unit}"


def _p_text(p_value: float) -> str:
    return f"{p_value:.2g}" if p_value >= 0.001 else "under 0.001"
