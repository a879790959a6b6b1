"""Comparison of groups: whether their difference is more than luck, over seeds and over the examples they answered.

each two groups   tests over seeds, and over examples (`example_comparison`); each is made once
all of them       how many can tell anything; among so many the seeds' test is chosen, and p-values are corrected

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

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from orchestrator.errors import InputError
from orchestrator.measurements import is_better_lower
from orchestrator.registry.engines.dialects import select_items
from orchestrator.registry.groups.example_comparison import ExampleComparison, compare_examples
from orchestrator.registry.groups.group_records import GroupRecord
from orchestrator.registry.groups.groups import find_group
from orchestrator.registry.groups.varying_paths import varying_paths
from orchestrator.registry.tables import RunRow
from orchestrator.run_states import RunState
from orchestrator.significance.comparison import (
    POWER,
    WelchResult,
    compare_means,
    holm,
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
from orchestrator.significance.summary import LEVEL, Interval, has_spread, why_noise_is_unknown


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
class _SeedTests:
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


def _compare_seeds(first: GroupRecord, second: GroupRecord) -> _SeedTests:
    """Test the difference of two groups over their seeds."""
    one, other = ({seed.seed: seed.score for seed in group.seeds} for group in (first, second))
    common = sorted(seed for seed in one.keys() & other.keys() if seed is not None)
    differences = [one[seed] - other[seed] for seed in common]
    return _SeedTests(
        first,
        second,
        differences,
        shows_noise=any(has_spread([scores[seed] for seed in common]) for scores in (one, other) if common),
        paired=compare_pairs(differences) if len(common) > 1 else None,
        welch=compare_means(first.scores, second.scores),
    )


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
        return _in_words(self)


def _compare_groups(
    groups: Sequence[GroupRecord], examples: Mapping[tuple[int, int], ExampleComparison | None]
) -> list[Comparison]:
    """Compare each two of some groups, and correct for their number.

    Args:
        groups: as `_check_comparable` lets them pass.
        examples: comparison over examples of each two groups, by their places.
    """
    pairs = [
        (_compare_seeds(groups[one], groups[other]), examples.get((one, other)))
        for one, other in combinations(range(len(groups)), 2)
    ]
    alone = [_speaking_alone(*pair) for pair in pairs]
    num_telling = max(1, sum(p_value is not None for _, p_value in alone))
    found = [_comparison(*pair, num_telling) for pair in pairs]
    known = [comparison.p_value for comparison in found if comparison.p_value is not None]
    corrected = iter(holm(known))
    return [
        replace(
            comparison,
            corrected_p_value=None if comparison.p_value is None else next(corrected),
            num_comparisons=len(known) or 1,
            test_alone=f"{test} (p = {_p_text(p_value)})" if p_value is not None and p_value < 1 - LEVEL else "",
        )
        for comparison, (test, p_value) in zip(found, alone, strict=True)
    ]


def _speaking_alone(seeds: _SeedTests, examples: ExampleComparison | None) -> tuple[str, float | None]:
    """Name and p-value of the test that speaks where nothing else is asked."""
    test, result = seeds.speaking()
    if result.p_value is None and examples is not None:
        return examples.test, examples.p_value
    return test, result.p_value


def _check_comparable(groups: Sequence[GroupRecord]) -> None:
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
                    f"the other {other}; score both models on the same data, each by "
                    "a run of a spec with `kind: evaluate`: orchestrator schema evaluate"
                )
        if not group.seeds:
            why = group.refusal or "no run of it completed with a score"
            raise InputError(f"group {group.label} cannot be compared: {why}")


def _comparison(tests: _SeedTests, examples: ExampleComparison | None, num_comparisons: int) -> Comparison:
    first, second = tests.first, tests.second
    told = [{**group.parameters, "code": group.code_version} for group in (first, second)]
    differs_in = {path: (told[0].get(path), told[1].get(path)) for path in sorted(varying_paths(told))}
    return Comparison(first, second, tests.comparison(num_comparisons), examples, differs_in, None)


def compare_named(session: Session, names: Sequence[str], state: ColumnElement[RunState]) -> list[Comparison]:
    """Compare what names stand for, as `Registry.compare` describes it."""
    groups = [find_group(session, name, state) for name in names]
    if len(groups) < 2:
        raise InputError("name at least two groups, runs or trials to compare: `orchestrator groups list` shows groups")
    for (one, first), (other, second) in combinations(zip(names, groups, strict=True), 2):
        if [run.id for run in first.runs] == [run.id for run in second.runs]:
            raise InputError(f"{one} and {other} are the same runs; name different ones")
    _check_comparable(groups)
    ids = [run.id for group in groups for run in group.runs if run.is_scored]
    kept = select(RunRow.id, RunRow.predictions_path).where(RunRow.id.in_(select_items(session, ids)))
    predictions = {run_id: path for run_id, path in session.execute(kept) if path}
    places = combinations(range(len(groups)), 2)
    return _compare_groups(
        groups, {(one, other): compare_examples(groups[one], groups[other], predictions) for one, other in places}
    )


def _in_words(comparison: Comparison) -> str:
    """Tell in one sentence whether two groups differ, by what, and how many seeds would settle it."""
    seeds, examples = comparison.seeds, comparison.examples
    amount = _amounts(comparison.first.metric)
    if comparison.p_value is None:
        why = why_noise_is_unknown(comparison.first.scores, comparison.second.scores)
        return (
            f"nothing can tell: difference {amount(seeds.difference)} cannot be held against the noise of seeds "
            f"({why}), and no predictions of the same examples are kept that tell of {comparison.first.metric}; "
            "run further seeds"
        )
    speaks = seeds if seeds.p_value is not None or examples is None else examples
    interval = speaks.interval
    within = "" if interval is None else f", 95 % interval {amount(interval.low, False)} to {amount(interval.high)}"
    p_value = f"p = {_p_text(comparison.p_value)} ({speaks.test})"
    if comparison.num_comparisons > 1 and comparison.corrected_p_value is not None:
        corrected = _p_text(comparison.corrected_p_value)
        p_value += f"; corrected for {comparison.num_comparisons} comparisons (Holm): p = {corrected}"
    facts = f"difference {amount(speaks.difference)}{within}, {p_value}"
    if speaks is examples:
        why = why_noise_is_unknown(comparison.first.scores, comparison.second.scores)
        models = "these two models are" if comparison.is_distinguishable else "not even these two models are"
        return f"{models} distinguishable: {facts}; {why}: whether further seeds would say so is not known"
    if not comparison.is_distinguishable:
        alone = f", though alone they would be by {comparison.test_alone}" if comparison.test_alone else ""
        among = f" among {comparison.num_comparisons} comparisons{alone}" if comparison.num_comparisons > 1 else ""
        return f"not distinguishable{among}: {facts}{_further(comparison)}"
    is_first = (speaks.difference > 0) != comparison.first.is_better_lower
    return f"distinguishable: {'the first' if is_first else 'the second'} is better, {facts}"


def _further(comparison: Comparison) -> str:
    """Words on the number of seeds that would settle a difference that is not settled."""
    needed = comparison.seeds.num_seeds_needed
    if needed is None:
        return "; no number of seeds settles so small a difference"
    if needed <= min(comparison.seeds.num_first, comparison.seeds.num_second):
        return f"; {needed} seeds each find a difference of this size {POWER:.0%} of the time"
    return f"; about {needed} seeds each would settle a difference of this size"


def _amounts(metric: str) -> Any:
    """Function that tells a difference: scores, which are fractions, in points of a hundred."""

    def amount(value: float, with_unit: bool = True) -> str:
        if is_better_lower(metric):
            return f"{value:.4g}"
        decimals = 1 if abs(value) >= 0.001 or not value else 1 - math.floor(math.log10(100 * abs(value)))
        return f"{100 * value:.{min(decimals, 4)}f}" + (" points" if with_unit else "")

    return amount


def _p_text(p_value: float) -> str:
    """Text of a p-value.

    >>> _p_text(0.03125), _p_text(1e-9)
    ('0.031', 'under 0.001')
    """
    return f"{p_value:.2g}" if p_value >= 0.001 else "under 0.001"
