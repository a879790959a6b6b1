"""Comparison of groups: whether their difference is more than luck, over seeds and over the examples they answered.

each two groups   tests over seeds (`seed_comparison`), and over examples (`example_comparison`); each is made once
all of them       how many can tell anything; among so many the seeds' test is chosen, and p-values are corrected
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from orchestrator.errors import InputError
from orchestrator.registry.groups.comparison_words import in_words, p_text
from orchestrator.registry.groups.example_comparison import ExampleComparison
from orchestrator.registry.groups.group_records import GroupRecord
from orchestrator.registry.groups.seed_comparison import SeedComparison, SeedTests, compare_seeds
from orchestrator.registry.groups.varying_paths import varying_paths
from orchestrator.significance.comparison import holm
from orchestrator.significance.summary import LEVEL


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
        groups: as `check_comparable` lets them pass.
        examples: comparison over examples of each two groups, by their places.
    """
    pairs = [
        (compare_seeds(groups[one], groups[other]), examples.get((one, other)))
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
            test_alone=f"{test} (p = {p_text(p_value)})" if p_value is not None and p_value < 1 - LEVEL else "",
        )
        for comparison, (test, p_value) in zip(found, alone, strict=True)
    ]


def _speaking_alone(seeds: SeedTests, examples: ExampleComparison | None) -> tuple[str, float | None]:
    """Name and p-value of the test that speaks where nothing else is asked."""
    test, result = seeds.speaking()
    if result.p_value is None and examples is not None:
        return examples.test, examples.p_value
    return test, result.p_value


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
                    f"the other {other}; score both models on the same data, each by "
                    "a run of a spec with `kind: evaluate`: orchestrator schema evaluate"
                )
        if not group.seeds:
            why = group.refusal or "no run of it completed with a score"
            raise InputError(f"group {group.label} cannot be compared: {why}")


def _comparison(tests: SeedTests, examples: ExampleComparison | None, num_comparisons: int) -> Comparison:
    first, second = tests.first, tests.second
    told = [{**group.parameters, "code": group.code_version} for group in (first, second)]
    differs_in = {path: (told[0].get(path), told[1].get(path)) for path in sorted(varying_paths(told))}
    return Comparison(first, second, tests.comparison(num_comparisons), examples, differs_in, None)
