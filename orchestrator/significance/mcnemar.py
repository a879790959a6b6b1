"""Answers of two models to the same examples: whether one is right more often, by those that it alone has right."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.significance.distributions import normal_p_value, normal_quantile
from orchestrator.significance.summary import LEVEL, Interval


@dataclass(frozen=True)
class McNemarResult:
    """Two accuracies over the same examples, the first one's minus the second one's."""

    num_examples: int
    only_first: int
    """Number of examples that the first model alone has right."""
    only_second: int
    """Number of examples that the second model alone has right."""
    difference: float
    interval: Interval
    """Interval of the difference of accuracies."""
    p_value: float
    """Exact probability of so uneven a split of these examples, on either side, between equal models."""
    chi_square: float
    """Statistic of the test by chi-square, corrected for continuity."""
    chi_square_p_value: float
    """Its probability, which is close to the exact one from about 25 examples that one model alone has right."""


def compare_answers(first: Sequence[bool], second: Sequence[bool], level: float = LEVEL) -> McNemarResult:
    """Compare two models by which of the same examples, at least one, each has right.

    Source: McNemar (1947), Note on the sampling error of the difference between correlated proportions or percentages,
    with the correction for continuity of Edwards (1948). The exact test is the sign test over the examples that differ;
    Dietterich (1998), Approximate statistical tests for comparing supervised classification learning algorithms, 3.1,
    recommends it for models that were trained once.
    """
    pairs = list(zip(first, second, strict=True))
    only_first = sum(one and not other for one, other in pairs)
    only_second = sum(other and not one for one, other in pairs)
    discordant = only_first + only_second
    chi_square = max(0, abs(only_first - only_second) - 1) ** 2 / discordant if discordant else 0.0
    return McNemarResult(
        len(pairs),
        only_first,
        only_second,
        (only_first - only_second) / len(pairs),
        _interval(len(pairs), only_first, only_second, level),
        sign_test(only_first, only_second),
        chi_square,
        normal_p_value(math.sqrt(chi_square)),
    )


def sign_test(num_first: int, num_second: int) -> float:
    """Probability that fair coins split as unevenly, on either side, as these two numbers.

    >>> sign_test(0, 5), sign_test(3, 3), sign_test(0, 0)
    (0.0625, 1.0, 1.0)
    """
    total, fewer = num_first + num_second, min(num_first, num_second)
    if 2 * fewer >= total:
        return 1.0
    # The terms' ratios, from the largest one down: the binomial coefficients themselves would not fit a float.
    logarithm = math.lgamma(total + 1) - math.lgamma(fewer + 1) - math.lgamma(total - fewer + 1) - total * math.log(2)
    term, added = 1.0, 1.0
    for number in range(fewer, 0, -1):
        term *= number / (total - number + 1)
        added += term
    return min(1.0, 2.0 * math.exp(logarithm) * added)


def _interval(num_examples: int, only_first: int, only_second: int, level: float) -> Interval:
    """Interval of the difference of paired proportions.

    Source: Bonett and Price (2012), Adjusted Wald confidence interval for a difference of binomial proportions based on
    paired data: one example is added to each kind that differs, which keeps the coverage of small samples.
    """
    total = num_examples + 2
    one, other = (only_first + 1) / total, (only_second + 1) / total
    half = normal_quantile(level) * math.sqrt((one + other - (one - other) ** 2) / total)
    return Interval(max(-1.0, one - other - half), min(1.0, one - other + half))
