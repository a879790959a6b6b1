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
from datetime import UTC, datetime
from pathlib import Path

import torch

from benchmarks.gpu.machine import card_name, code_digest, facts, installed_version, tell
from benchmarks.gpu.results import RESULTS, Report
from benchmarks.gpu.setting import Budget, Setting
from benchmarks.gpu.stages import STAGES, run_stages

_SMALL_FORM = "the small form runs the same code on the CPU: python -m benchmarks.gpu --small"

_AGAIN_HELP = "measure anew what a run of today has measured on this card with the same code and packages"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
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
    tell(facts(setting))
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
