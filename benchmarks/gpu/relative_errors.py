"""Relative errors of a computation, ‖x − reference‖ / ‖reference‖ over all elements, and those that rounding explains.

Tolerances follow from the precision. Rounding a number to it is wrong by up to its unit roundoff u, and n roundings one
behind another add up to about u·√n where their errors are independent (Higham 2002, section 2.8); twice that is
allowed. A sum of K fp32 numbers rounds K times, which makes another √K; the sums of bf16 and tf32 products are in fp32.
"""

import math
from collections.abc import Callable

from torch import Tensor

from benchmarks.gpu.results import Value
from benchmarks.gpu.setting import UNIT_ROUNDOFF

FAILED = "failed"
_LONGEST_SUM = 512


def tolerance(precision: str, num_roundings: int) -> float:
    """Largest relative error that rounding explains."""
    longest_sum = _LONGEST_SUM if precision == "fp32" else 1
    return 2 * UNIT_ROUNDOFF[precision] * math.sqrt(num_roundings * longest_sum)


def errors(
    precision: str,
    reference: Callable[[], tuple[Tensor, Tensor]],
    own: Callable[[], tuple[Tensor, Tensor]],
    roundings: tuple[int, int],
) -> dict[str, Value]:
    """Relative errors of values and gradients, each with its share of the tolerance, or what went wrong."""
    try:
        pairs = list(zip(own(), reference(), strict=True))
    except Exception as error:  # of a kernel, which is what is looked for
        return {precision: f"{FAILED}: {type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"}
    found: dict[str, Value] = {}
    for name, (ours, expected), num_roundings in zip(("value", "gradient"), pairs, roundings, strict=True):
        found[f"{precision} {name}"] = relative_error(ours, expected)
        found[f"{precision} {name} allowed"] = tolerance(precision, num_roundings)
    return found


def relative_error(ours: Tensor, expected: Tensor) -> float:
    """Compute ‖ours − expected‖ / ‖expected‖ in float64."""
    ours, expected = ours.double().cpu(), expected.double().cpu()
    return float((ours - expected).norm() / expected.norm())


def with_verdict(row: dict[str, Value]) -> dict[str, Value]:
    """Add whether every error is allowed; a row that is refused in every precision has no verdict."""
    allowed = [
        error <= limit  # NaN is not
        for name, error in row.items()
        if isinstance(error, float) and isinstance(limit := row.get(f"{name} allowed"), float)
    ]
    has_failed = any(isinstance(value, str) and value.startswith(FAILED) for value in row.values())
    return row | ({"ok": all(allowed) and not has_failed} if allowed or has_failed else {})
