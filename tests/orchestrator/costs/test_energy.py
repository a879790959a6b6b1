"""Energy counters of this host, on folders and functions that stand for the real ones.

Alone: .venv/bin/pytest tests/orchestrator/costs/test_energy.py
"""

import ctypes
from pathlib import Path
from typing import Any

import pytest

from orchestrator.costs import energy
from orchestrator.costs.energy import open_energy

RANGE = 1_000_000_000


def domain(powercap: Path, folder: str, name: str, microjoules: int) -> None:
    path = powercap / folder
    path.mkdir(parents=True, exist_ok=True)
    (path / "name").write_text(f"{name}\n")
    (path / "max_energy_range_uj").write_text(f"{RANGE}\n")
    (path / "energy_uj").write_text(f"{microjoules}\n")


def test_packages_and_memory_count_once_and_cores_within_a_package_do_not(tmp_path: Path) -> None:
    for number, name in enumerate(["package-0", "core", "dram"]):
        domain(tmp_path, f"intel-rapl:{number}", name, 100)
    used = open_energy(with_gpus=False, powercap=tmp_path)
    assert used.joules() == 0.0
    for number, name in enumerate(["package-0", "core", "dram"]):
        domain(tmp_path, f"intel-rapl:{number}", name, 2_000_100)
    assert used.joules() == pytest.approx(4.0)


def test_a_counter_that_wraps_around_goes_on(tmp_path: Path) -> None:
    domain(tmp_path, "intel-rapl:0", "package-0", RANGE - 1_000_000)
    used = open_energy(with_gpus=False, powercap=tmp_path)
    for microjoules in (2_000_000, 1_000_000):  # wrapped around twice
        domain(tmp_path, "intel-rapl:0", "package-0", microjoules)
        joules = used.joules()
    assert joules == pytest.approx((1 + 2 - 1) + RANGE / 1e6)


def test_counters_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    assert open_energy(with_gpus=False, powercap=tmp_path / "none").joules() is None
    domain(tmp_path, "intel-rapl:0", "package-0", 0)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("secret")
    assert open_energy(with_gpus=False, powercap=tmp_path).joules() is None


class FakeDriver:
    """NVIDIA's library with two GPUs, of which the second one does not count energy."""

    def __init__(self) -> None:
        self.millijoules = 5_000

    def nvmlInit_v2(self) -> int:  # noqa: N802  (the library's name)
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, device: Any) -> int:  # noqa: N802
        device._obj.value = index + 1
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, device: Any, value: Any) -> int:  # noqa: N802
        value._obj.value = self.millijoules
        return 0 if device.value == 1 else 3


def test_gpus_count_where_the_run_takes_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    with_gpus, without = (open_energy(with_gpus=takes, powercap=tmp_path) for takes in (True, False))
    driver.millijoules += 3_000
    assert (with_gpus.joules(), without.joules()) == (3.0, None)


def test_a_host_without_nvidias_driver_has_no_gpu_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "_NVML", "libno-such-driver.so.1")
    assert open_energy(with_gpus=True, powercap=tmp_path).joules() is None
