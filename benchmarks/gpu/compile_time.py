"""Seconds until layers are compiled, with an empty or a filled cache, and the steps that win them back.

Each is measured in a process of its own, as a training run meets it; the second has the cache that the first has left.

    python -m benchmarks.gpu.compile_time base      # the seconds of one process, with the cache that is there
"""

import argparse
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.gpu.checks import ROOT
from benchmarks.gpu.goals import figure
from benchmarks.gpu.own_step import build_learner, compile_model
from benchmarks.gpu.results import NOT_REACHED, Report, Row, Value
from benchmarks.gpu.setting import SMALL_SIZE, Budget, Setting
from benchmarks.gpu.sides import HERE, HERE_COMPILED

CACHES = ("empty", "filled")


def measure(setting: Setting, budget: Budget, report: Report) -> Iterator[Row]:
    """Compile the layers of a size with each state of the cache: a row each, with the steps that win its seconds back.

    Seconds that an earlier run has are not measured again; what a step saves may have been measured since.
    """
    size, width = setting.choose(("base", 128), (SMALL_SIZE, 16))
    saved_ms = saved_ms_per_step(report, size, width)
    known = known_seconds(report, size)
    with TemporaryDirectory() as cache:
        for state in CACHES:
            named: dict[str, Value] = {"size": size, "S": width, "cache": state}
            if budget.is_spent and not known:
                yield {**named, "outcome": NOT_REACHED}
                continue
            found = known.get(state) or compile_in_a_process(setting, size, Path(cache), budget.left_s)
            if isinstance(found, float):
                yield {**named, "s": found, "saved ms a step": saved_ms, **payback(found, saved_ms)}
            else:
                yield {**named, **found}


def known_seconds(report: Report, size: str) -> dict[Value, float]:
    """Seconds of an earlier run with each state of the cache; none unless of both, since the first makes the second."""
    rows = report.earlier_rows("compile time", size=size)
    found = {row["cache"]: seconds for row in rows if isinstance(seconds := row.get("s"), float)}
    return found if found.keys() == set(CACHES) else {}


def saved_ms_per_step(report: Report, size: str, width: int) -> float | None:
    """Milliseconds that compiled layers save in a step of full rows; None where the report has no such steps."""
    eager, compiled = (figure(report, size, width, 1.0, side, "ms") for side in (HERE, HERE_COMPILED))
    return None if eager is None or compiled is None else eager - compiled


def payback(seconds: float, saved_ms: float | None) -> dict[str, Value]:
    """Tell after how many steps compiling has paid."""
    if saved_ms is None:
        return {"paid after steps": None}
    return {"paid after steps": math.ceil(1000 * seconds / saved_ms) if saved_ms > 0 else "never: no step is shorter"}


def compile_in_a_process(setting: Setting, size: str, cache: Path, limit_s: float) -> float | dict[str, Value]:
    """Compile in a new process, with a folder for the compiler's cache. Returns the seconds, or why there are none."""
    command = [sys.executable, "-m", "benchmarks.gpu.compile_time", size, *setting.choose([], ["--small"])]
    folders = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
    environment = {**os.environ, **folders}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {"outcome": NOT_REACHED}
    if done.returncode:
        return {"outcome": f"failed: {done.stderr.strip().rpartition(chr(10))[2][:200]}", "ok": False}
    return float(done.stdout.split()[-1])


def main(arguments: list[str] | None = None) -> None:
    """Compile a size's layers once, and print the seconds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.compile_time")
    parser.add_argument("size")
    parser.add_argument("--small", action="store_true", help="the small form's model, whatever the size")
    wanted = parser.parse_args(arguments)
    setting = Setting(torch.device("cuda" if torch.cuda.is_available() else "cpu"), wanted.small)
    if not setting.is_cuda:
        torch.set_num_threads(1)
    print(compile_model(setting, build_learner(setting.build_config(wanted.size), setting.device).model))


if __name__ == "__main__":
    main()
