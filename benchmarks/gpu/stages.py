"""Stages of the GPU benchmark: their order, their share of the time, and how one is run."""

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.gpu import ceilings, goals, losses, machine, parity, resume, step_time, time_shares
from benchmarks.gpu.results import NOT_REACHED, Report, Row, StageRecord
from benchmarks.gpu.setting import Budget, Setting


@dataclass(frozen=True)
class Stage:
    """A part of a run."""

    name: str
    seconds: float
    """Time that it may take; it begins no case after that."""
    measure: Callable[[Setting, Budget, Report], Iterator[Row]]
    title: str
    """Sentence above its table."""


STAGES = (
    Stage("machine", 20, machine.measure, "What the figures were measured on."),
    Stage("ceilings", 20, ceilings.measure, "Rates of the card, on random data."),
    Stage("parity", 90, parity.measure, "Relative errors against float64, and those that rounding explains."),
    Stage("losses", 60, losses.measure, "bf16 against fp32 from the same weights, and fp32 from other weights."),
    Stage("resume", 45, resume.measure, "Whether a run that is saved and loaded ends at the same bits."),
    Stage("step time", 280, step_time.measure, "A step here and in transformers, taking turns; medians over rounds."),
    Stage("time shares", 40, time_shares.measure, "Where a step's time goes, by kernels' names."),
    Stage("goals", 10, goals.measure, "What is asked of a GPU."),
)


def run_stage(stage: Stage, setting: Setting, total: Budget, report: Report) -> bool:
    """Run a stage, writing each row as it comes. Returns whether nothing failed and every check was passed."""
    started = time.monotonic()
    budget = Budget(min(stage.seconds, total.left_s))
    record = report.stages[stage.name] = StageRecord(stage.title)
    report.write()
    print(f"{stage.name}: begins, {budget.left_s:.0f} s", flush=True)
    try:
        for row in stage.measure(setting, budget, report):
            record.rows.append(dict(row))
            record.seconds = time.monotonic() - started
            report.write()
        record.ended = "done"
    except Exception as error:  # the stages behind it are run nevertheless
        traceback.print_exc(file=sys.stderr)
        record.ended = f"failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
    record.seconds = time.monotonic() - started
    report.write()
    failed = sum(row.get("ok") is False for row in record.rows)
    missed = sum(NOT_REACHED in row.values() for row in record.rows)
    counts = {"rows": len(record.rows), "FAILED": failed, "not reached": missed}
    told = ", ".join(f"{number} {what}" for what, number in counts.items() if number)
    print(f"{stage.name}: {record.ended}, {record.seconds:.0f} s, {told}", flush=True)
    return record.ended == "done" and not failed
