"""Devices of the tests beside this file: the CPU always, CUDA where there is a card."""

import pytest
import torch

from benchmarks.gpu.results import Report
from benchmarks.gpu.setting import Budget, Setting

ON_EACH_DEVICE = pytest.mark.parametrize(
    "device",
    ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"))],
)
"""Run a test on each device."""

PLENTY_S = 3600.0
"""Time for a stage: a busy machine is no failure."""


def small_setting(device: str) -> Setting:
    """Setting of the small form; a second thread brings nothing to models this small."""
    torch.set_num_threads(1)
    return Setting(torch.device(device), is_small=True)


def rows_of(measure: object, device: str, report: Report) -> list[dict[str, object]]:
    """All rows of a stage."""
    return [dict(row) for row in measure(small_setting(device), Budget(PLENTY_S), report)]  # type: ignore[operator]
