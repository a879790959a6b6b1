"""One command for a machine with a GPU: parity, resume, step time and utilization, levers, feed.

    python -m benchmarks.gpu                     # within ten minutes
    python -m benchmarks.gpu --small             # the same code in seconds, on any machine
    python -m benchmarks.gpu --stages "step time" levers
    python -m benchmarks.gpu                     # once more on the same day: goes on with what the time did not reach

Run it in the repository's root. It needs torch ≥ 2.11, numpy, tokenizers, safetensors and this repository, which need
not be installed; transformers is compared where it is there. Results are written after every row, so that a run that is
ended early loses none. Exit status 1: no card, or a check has failed.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from benchmarks.gpu import ceilings, feed, levers, machine, parity, resume, step_time, time_shares
from benchmarks.gpu.machine import card_name, code_digest, facts, installed_version
from benchmarks.gpu.results import DONE, RESULTS, Report, Row, StageRecord, is_reached
from benchmarks.gpu.setting import Budget, Setting

_SMALL_FORM = "the small form runs the same code on the CPU: python -m benchmarks.gpu --small"

_AGAIN_HELP = "measure anew what a run of today has measured on this card with the same code and packages"


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


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    names = [stage.name for stage in STAGES]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="tiny sizes and few steps, on the card where there is one")
    parser.add_argument("--stages", nargs="+", choices=names, default=names, metavar="STAGE", help=", ".join(names))
    parser.add_argument("--again", action="store_true", help=_AGAIN_HELP)
    parser.add_argument("--minutes", type=float, default=9.5, help="time for all stages together (default 9.5)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the results")
    return parser.parse_args(arguments)


def why_no_card() -> str:
    """Say which PyTorch finds no card, and whether it could use one."""
    built = f"built for CUDA {torch.version.cuda}, sees no card" if torch.version.cuda else "is built without CUDA"
    return f"PyTorch {torch.__version__} {built}"


def main(arguments: list[str] | None = None) -> int:
    """Run the stages. Returns the exit status."""
    wanted = parse(arguments)
    has_card = torch.cuda.is_available()
    if not has_card and not wanted.small:
        print(f"no CUDA device here: {why_no_card()}; {_SMALL_FORM}", file=sys.stderr)
        return 1
    setting = Setting(torch.device("cuda" if has_card else "cpu"), wanted.small)
    print(*(f"{what}: {found}" for what, found in facts(setting).items()), "", sep="\n", flush=True)
    budget, started = Budget(60 * wanted.minutes), time.monotonic()
    if not has_card:
        torch.set_num_threads(1)  # more of them wait for each other at these sizes
    name = f"gpu_{card_name(setting)}_{datetime.now(UTC):%Y-%m-%d}"
    command = " ".join(["python -m benchmarks.gpu", *(arguments or sys.argv[1:])])
    packages = f"torch {torch.__version__}, transformers {installed_version('transformers')}"
    made_with = f"code {code_digest()}, {packages}"
    report = Report.open(wanted.output / name, command, made_with)
    if wanted.again:
        report.earlier.clear()
    has_passed = run_stages([stage for stage in STAGES if stage.name in wanted.stages], setting, budget, report)
    print(f"{report.markdown_path} and .json, after {time.monotonic() - started:.0f} s")
    return 0 if has_passed else 1


if __name__ == "__main__":
    sys.exit(main())
