"""Correction of the p-values of several comparisons, one of which looks good by luck sooner than a single one."""

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrected p-values, in the order of those given: those below α keep the chance of any false finding below α.

    Source: Holm (1979), A simple sequentially rejective multiple test procedure, section 3, as adjusted values.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, number in enumerate(sorted(range(len(p_values)), key=lambda number: p_values[number])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[number]))
        corrected[number] = highest
    return corrected
