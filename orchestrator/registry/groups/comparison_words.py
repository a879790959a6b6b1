"""Words on a comparison of two groups: the answer in one sentence, with the figures that it rests on."""

import math
from typing import TYPE_CHECKING, Any

from orchestrator.measurements import is_better_lower
from orchestrator.significance.comparison import POWER
from orchestrator.significance.summary import why_noise_is_unknown

if TYPE_CHECKING:
    from orchestrator.registry.groups.group_comparison import Comparison


def in_words(comparison: "Comparison") -> str:
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
    p_value = f"p = {p_text(comparison.p_value)} ({speaks.test})"
    if comparison.num_comparisons > 1 and comparison.corrected_p_value is not None:
        corrected = p_text(comparison.corrected_p_value)
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


def _further(comparison: "Comparison") -> str:
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


def p_text(p_value: float) -> str:
    """Text of a p-value.

    >>> p_text(0.03125), p_text(1e-9)
    ('0.031', 'under 0.001')
    """
    return f"{p_value:.2g}" if p_value >= 0.001 else "under 0.001"
