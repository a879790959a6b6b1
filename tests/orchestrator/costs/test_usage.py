"""Sums and texts of what work has taken. Alone: .venv/bin/pytest tests/orchestrator/costs/test_usage.py"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.costs.usage import Usage, total_usage
from orchestrator.registry.records import AttemptCostRecord

_AMOUNTS = st.integers(0, 10**9).map(float)  # whole numbers: their sums do not depend on the order
_USAGES = st.builds(
    Usage,
    seconds=_AMOUNTS,
    measured_cpu_seconds=_AMOUNTS,
    derived_cpu_seconds=_AMOUNTS,
    gpu_seconds=st.dictionaries(st.sampled_from(["H200", "L40S"]), _AMOUNTS.filter(bool)),
    energy_joules=st.none() | _AMOUNTS,
    num_unknown=st.integers(0, 3),
)


@given(_USAGES, _USAGES, _USAGES)
def test_sums_depend_on_no_order_and_lose_nothing(one: Usage, two: Usage, three: Usage) -> None:
    assert (one + two) + three == total_usage([three, two, one])
    assert (one + two).all_gpu_seconds == one.all_gpu_seconds + two.all_gpu_seconds
    assert one + Usage() == one


def test_energy_that_one_part_does_not_know_is_the_others() -> None:
    assert (Usage(energy_joules=5.0) + Usage()).energy_joules == 5.0
    assert total_usage([Usage(), Usage()]).energy_joules is None


def test_an_attempts_processor_time_is_measured_or_derived() -> None:
    measured = Usage.of_attempt(AttemptCostRecord("r", 1, 10.0, 7.0, True, 0.0))
    derived = Usage.of_attempt(AttemptCostRecord("r", 2, 10.0, 20.0, False, 30.0, "H200", 5.0))
    assert (measured.measured_cpu_seconds, measured.derived_cpu_seconds, measured.gpu_seconds) == (7.0, 0.0, {})
    assert (derived.measured_cpu_seconds, derived.derived_cpu_seconds) == (0.0, 20.0)
    assert derived.gpu_seconds == {"H200": 30.0}


@pytest.mark.parametrize(
    ("usage", "text"),
    [
        (Usage(60, 3600, 0), "1:00 min; 1 CPU h (measured)"),
        (Usage(60, 0, 1800, {"H200": 7200}), "1:00 min; 0.5 CPU h (derived); 2 H200 h"),
        (Usage(60, 900, 2700, {}, 3.6e6), "1:00 min; 1 CPU h (25% measured); 1 kWh"),
        (Usage(1, 0, 0.0212, {"H200": 3}), "1 s; 0.021 CPU s (derived); 3 H200 s"),
        (Usage(60, 3600, num_unknown=2), "1:00 min; 1 CPU h (measured); beside 2 runs not recorded"),
        (Usage(60, num_unknown=2), "1:00 min; CPU time not recorded"),
        (Usage(num_unknown=1), "not recorded"),
    ],
)
def test_the_text_says_how_each_number_is_known(usage: Usage, text: str) -> None:
    assert str(usage) == text
