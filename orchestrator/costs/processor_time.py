"""Processor time of a process and of all below it, as Linux counts it in `/proc`."""

import os
from pathlib import Path

_PROC = Path("/proc")
ProcessKey = tuple[int, int]
"""Number of a process, and the tick at which it began: numbers are given again."""


class ProcessorTime:
    """Processor time that a process and all below it have used since this was made.

    A Ray that the driver has started is below it, with all its workers. What a process has used is known up to the
    last look before its end.

    Args:
        root: number of the process; this one when left out.
        proc: folder of the processes' numbers.
    """

    def __init__(self, root: int | None = None, proc: Path = _PROC) -> None:
        self._root, self._proc = root or os.getpid(), proc
        self._before = self._ticks()
        self._latest = dict(self._before)

    @property
    def is_measured(self) -> bool:
        """Whether this system tells processor time in this way."""
        return bool(self._before)

    def seconds(self) -> float:
        """Seconds of processor time since this was made."""
        self._latest |= self._ticks()
        ticks = sum(used - self._before.get(key, 0) for key, used in self._latest.items())
        return ticks / os.sysconf("SC_CLK_TCK")

    def _ticks(self) -> dict[ProcessKey, int]:
        """Ticks that each process below the root has used, and the root itself."""
        parents: dict[int, int] = {}
        used: dict[int, tuple[ProcessKey, int]] = {}
        for folder in self._proc.iterdir() if self._proc.is_dir() else ():
            if folder.name.isdecimal() and (fields := _stat_fields(folder)):
                number = int(folder.name)
                parents[number] = int(fields[1])
                used[number] = (number, int(fields[19])), int(fields[11]) + int(fields[12])
        return dict(used[number] for number in used if self._is_below(number, parents))

    def _is_below(self, number: int, parents: dict[int, int]) -> bool:
        seen = set()
        while number != self._root:
            if number in seen or number not in parents:
                return False
            seen.add(number)
            number = parents[number]
        return True


def _stat_fields(folder: Path) -> list[str]:
    """Fields of a process's `stat` from its state on, field 3 of proc(5); none of one that has just ended."""
    try:
        text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the program's name may have spaces and parentheses
