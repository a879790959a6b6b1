"""Energy of this host, by the counters of its processors (RAPL) and of its NVIDIA GPUs, where they can be read.

The counters are the host's: what other programs use meanwhile is counted, too. Linux lets root alone read RAPL's
counters unless the machine's administrator has decided otherwise.
"""

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

POWERCAP = Path("/sys/class/powercap")
_JOULES_PER_MICROJOULE = 1e-6
_JOULES_PER_MILLIJOULE = 1e-3
_NVML = "libnvidia-ml.so.1"
_NVML_SUCCESS = 0


class Counter(Protocol):
    """A counter of energy that only rises."""

    def joules(self) -> float | None:
        """Energy since the counter was made; None where it cannot be read any more."""


class RaplCounter:
    """Counter of one domain of a processor: the whole package, or its memory. It wraps around, within minutes at worst.

    Args:
        folder: domain's folder below `POWERCAP`.

    Raises: OSError, ValueError where the counter cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "energy_uj"
        self._range = int((folder / "max_energy_range_uj").read_text())
        self._last, self._used = int(self._file.read_text()), 0

    def joules(self) -> float | None:
        """Energy since the counter was made, as long as it is read more than once in each of its rounds."""
        try:
            now = int(self._file.read_text())
        except (OSError, ValueError):
            return None
        self._used += now - self._last if now >= self._last else now + self._range - self._last
        self._last = now
        return self._used * _JOULES_PER_MICROJOULE


class NvmlCounter:
    """Counter of one NVIDIA GPU, from Volta on.

    Args:
        read: returns the energy in millijoules since the driver was loaded; None where it cannot.
    """

    def __init__(self, read: Callable[[], int | None]) -> None:
        self._read, self._before = read, read()

    def joules(self) -> float | None:
        """Energy since the counter was made."""
        now = self._read()
        return None if now is None or self._before is None else (now - self._before) * _JOULES_PER_MILLIJOULE


class Energy:
    """Energy of the host since this was made, of every counter that can be read."""

    def __init__(self, counters: list[Counter]) -> None:
        self._counters = counters

    def joules(self) -> float | None:
        """Sum of the counters; None where there is none."""
        read = [joules for counter in self._counters if (joules := counter.joules()) is not None]
        return sum(read) if read else None


def open_energy(*, with_gpus: bool, powercap: Path = POWERCAP) -> Energy:
    """Open the counters of this host's processors, and of its GPUs where these are used."""
    return Energy([*_rapl_counters(powercap), *(_nvml_counters() if with_gpus else ())])


def _rapl_counters(powercap: Path) -> Iterator[Counter]:
    """Counters of packages, and of memory, which lies below a package and is not part of its count."""
    for folder in sorted(powercap.glob("intel-rapl:*")):  # of AMD's processors as well
        try:
            name = (folder / "name").read_text().strip()
            if name.startswith("package") or name == "dram":
                yield RaplCounter(folder)
        except (OSError, ValueError):
            continue


def _nvml_counters() -> Iterator[Counter]:
    """Counters of all GPUs, by the library that comes with NVIDIA's driver; none where there is no driver."""
    try:
        library = ctypes.CDLL(_NVML)
        if library.nvmlInit_v2() != _NVML_SUCCESS:
            return
        count = ctypes.c_uint()
        if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _NVML_SUCCESS:
            return
        for index in range(count.value):
            device = ctypes.c_void_p()
            if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != _NVML_SUCCESS:
                continue
            counter = NvmlCounter(_millijoules(library, device))
            if counter.joules() is not None:
                yield counter
    except (OSError, AttributeError):  # no driver, or one that does not count energy
        return


def _millijoules(library: ctypes.CDLL, device: ctypes.c_void_p) -> Callable[[], int | None]:
    def read() -> int | None:
        value = ctypes.c_ulonglong()
        status = library.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(value))
        return int(value.value) if status == _NVML_SUCCESS else None

    return read
