"""A folder that stands for `/proc`."""

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def write_process(proc: Path, number: int, parent: int, ticks: int, begun: int = 7, name: str = "a (b) c") -> None:
    """Write what Linux says of a process: its parent, what it has used, and when it began."""
    fields = ["S", str(parent), *["0"] * 9, str(ticks), "0", *["0"] * 6, str(begun), "0"]
    (proc / str(number)).mkdir(exist_ok=True)
    (proc / str(number) / "stat").write_text(f"{number} ({name}) {' '.join(fields)}\n")
