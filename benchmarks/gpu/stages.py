"""Stages of the GPU benchmark: their order, their share of the time, and how one is run."""

import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.gpu import (
    ceilings,
    feed,
    levers,
    machine,
    parity,
    resume,
    step_time,
    time_shares,
)
from benchmarks.gpu.results import DONE, Report, Row, StageRecord, is_reached
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
    is_kept: bool = True
    """Whether a second run with the same code leaves it as it is, once every case was reached."""


STAGES = (
    Stage("machine", 5, machine.measure, "What the figures were measured on.", is_kept=False),
    Stage("ceilings", 20, ceilings.measure, "Rates of the card, on random data."),
    Stage("parity", 90, parity.measure, "Relative errors against float64, and those that rounding explains."),
    Stage("resume", 65, resume.measure, "Whether a run that is saved and loaded ends at the same bits."),
    Stage("step time", 160, step_time.measure, "A step here and in transformers, taking turns; medians over rounds."),
    Stage("time shares", 40, time_shares.measure, "Where a step's time goes, by kernels' names."),
    Stage("levers", 50, levers.measure, "A step without each lever alone, in turns with the one that has all."),
    Stage("feed", 15, feed.measure, "Steps on fed batches, in turns with steps on batches that lie on the device."),
)


def run_stages(stages: Sequence[Stage], setting: Setting, total: Budget, report: Report) -> bool:
    """Run stages, each in its own time and in what those before it left. Returns whether every check was passed."""
    missing = [stage for stage in stages if not has_kept(stage, report)]
    has_passed = not any(report.stages[stage.name].num_failed for stage in stages if stage not in missing)
    for place, stage in enumerate(missing):
        behind_s = sum(other.seconds for other in missing[place + 1 :])
        seconds = max(stage.seconds, total.left_s - behind_s)
        has_passed &= run_stage(stage, setting, Budget(min(seconds, total.left_s)), report)
    return has_passed


def has_kept(stage: Stage, report: Report) -> bool:
    """Whether an earlier run of today has all of a stage already, which is told."""
    record = report.earlier.get(stage.name)
    if not stage.is_kept or record is None or not record.is_complete:
        return False
    print(f"{stage.name}: kept, as the same code measured it on this card today; --again measures it anew", flush=True)
    return True


def run_stage(stage: Stage, setting: Setting, budget: Budget, report: Report) -> bool:
    """Run a stage, writing each row as it comes. Returns whether nothing failed and every check was passed."""
    started = time.monotonic()
    record = report.stages[stage.name] = StageRecord(stage.title, made_with=report.made_with)
    report.write()
    print(f"{stage.name}: begins, {budget.left_s:.0f} s", flush=True)
    try:
        for row in stage.measure(setting, budget, report):
            record.rows.append(dict(row))
            record.seconds = time.monotonic() - started
            report.write()
        record.ended = DONE
    except Exception as error:  # the stages behind it are run nevertheless
        traceback.print_exc(file=sys.stderr)
        record.ended = f"failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
    record.seconds = time.monotonic() - started
    report.write()
    missed = len(record.rows) - sum(map(is_reached, record.rows))
    counts = {"rows": len(record.rows), "FAILED": record.num_failed, "not reached": missed}
    told = ", ".join(f"{number} {what}" for what, number in counts.items() if number)
    print(f"{stage.name}: {record.ended}, {record.seconds:.0f} s, {told}", flush=True)
    return record.ended == DONE and not record.num_failed
