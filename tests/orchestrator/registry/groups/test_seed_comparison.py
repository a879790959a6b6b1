"""Tests over seeds: each is made once, however many comparisons there are, and their number chooses which one speaks.

pytest tests/orchestrator/registry/groups/test_seed_comparison.py
"""

from typing import Any

import pytest

from orchestrator.registry.groups import seed_comparison
from orchestrator.registry.groups.group_comparison import compare_groups
from orchestrator.registry.groups.seed_comparison import compare_seeds
from tests.orchestrator.registry.groups.samples import group_of

SIX, SEVEN = ([0.50, 0.52, 0.49, 0.51, 0.53, 0.48, 0.50][:number] for number in (6, 7))


@pytest.mark.parametrize("scores", [SIX, SEVEN])
def test_of_three_groups_each_two_are_tested_once(monkeypatch: pytest.MonkeyPatch, scores: list[float]) -> None:
    made: list[str] = []

    def count(name: str) -> None:
        original = getattr(seed_comparison, name)

        def counting(*arguments: Any) -> Any:
            made.append(name)
            return original(*arguments)

        monkeypatch.setattr(seed_comparison, name, counting)

    speaks = "paired_bootstrap_interval" if scores is SEVEN else "bootstrap_interval"
    for name in ("compare_pairs", "compare_means", "bootstrap_interval", "paired_bootstrap_interval"):
        count(name)
    groups = [group_of(key, [score + up for score in scores]) for key, up in (("a", 0.0), ("b", 0.1), ("c", 0.2))]
    assert len(compare_groups(groups, {})) == 3
    assert sorted(made) == sorted(3 * ["compare_pairs", "compare_means", speaks])


def test_the_number_of_comparisons_chooses_the_test() -> None:
    tests = compare_seeds(group_of("a", SIX), group_of("b", [score + 0.1 for score in SIX]))
    assert tests.comparison().test == "paired permutation over 6 common seeds"
    assert tests.comparison(num_comparisons=3).test == "Welch's test over 6 and 6 seeds"


def test_the_comparison_has_both_tests_whichever_speaks() -> None:
    tests = compare_seeds(group_of("a", SIX), group_of("b", SEVEN))
    for num_comparisons in (1, 3):
        comparison = tests.comparison(num_comparisons)
        assert (comparison.paired, comparison.welch) == (tests.paired, tests.welch)


def test_without_noise_no_test_speaks_and_nothing_is_drawn() -> None:
    comparison = compare_seeds(group_of("a", [0.5]), group_of("b", [0.6])).comparison()
    assert (comparison.test, comparison.p_value, comparison.bootstrap) == ("", None, None)
    assert comparison.difference == pytest.approx(-0.1)
