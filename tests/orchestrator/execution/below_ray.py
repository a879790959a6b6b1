"""The command line without Ray, as a process: `python -m tests.orchestrator.execution.below_ray WORK run words.yaml`.

No Ray is started, and a tokenizer is not trained: the run does the WORK of that name in its place.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.base.errors import RunFailedError
from orchestrator.kinds.base import RunContext
from tests.waiting import PATIENCE_S, wait_for_interruption, wait_until

SPEC = "kind: tokenizer\ncorpus: {files: [text.txt]}\n"
NUM_LINES = 2000
"""Lines of a chatty run, far more than a pipe holds."""
logger = logging.getLogger("orchestrator.below_ray")


def write_inputs(folder: Path) -> None:
    """Write a spec, words.yaml, and its text."""
    (folder / "words.yaml").write_text(SPEC)
    (folder / "text.txt").write_text("Some words and some more.\n")


def chat(context: RunContext) -> None:
    """Say much."""
    for number in range(NUM_LINES):
        logger.info(f"line {number} " + "and so on " * 10)


def wait(context: RunContext) -> None:
    """Wait until somebody interrupts."""
    logger.info("waiting")
    wait_for_interruption()


def hang(context: RunContext) -> None:
    """Wait, and go on waiting when interrupted, as work does that takes long to save what it has."""
    logger.info("waiting")
    try:
        wait_for_interruption()
    except KeyboardInterrupt:
        logger.info("saving")
        wait_for_interruption()


def fail(context: RunContext) -> None:
    """Fail."""
    raise RunFailedError("no luck")


def succeed(context: RunContext) -> None:
    """Do nothing."""


def end_interrupted_at_step_7(context: RunContext) -> None:
    """Wait, and end with the step that an interruption saved."""
    logger.info("waiting")
    try:
        wait_for_interruption()
    except KeyboardInterrupt as error:
        error.step = 7  # type: ignore[attr-defined]
        raise


WORK: dict[str, Callable[[RunContext], None]] = {
    work.__name__: work for work in (chat, wait, hang, fail, succeed, end_interrupted_at_step_7)
}


def command_of(work: str, *arguments: str) -> list[str]:
    """The command line of a process that does some work."""
    return [sys.executable, "-m", __name__, work, *arguments]


def environment_of(home: Path) -> dict[str, str]:
    """The environment of such a process; without a home of the caller's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORCHESTRATOR_", "RAY_"))}
    root = str(Path(__file__).parents[3])
    return kept | {"PYTHONPATH": root, "ORCHESTRATOR_HOME": str(home)}


@contextmanager
def running(work: str, folder: Path, *arguments: str) -> Iterator["tuple[subprocess.Popen[str], str]"]:
    """A process that carries out words.yaml, and its run's id, once the work has begun; it ends with the block."""
    with subprocess.Popen(
        command_of(work, *(arguments or ("run", "words.yaml"))),
        cwd=folder,
        env=environment_of(folder / "home"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            run_id = process.stdout.readline().strip()
            assert run_id, process.stderr.read()
            log = folder / "home" / "storage" / "runs" / run_id / "log.txt"
            wait_until(lambda: log.is_file() and "waiting" in log.read_text(), "the run does not begin its work")
            yield process, run_id
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE_S)


def main() -> None:
    """Run the command line of this process, its Ray and its work replaced."""
    from contextlib import nullcontext

    from orchestrator.cli import entry
    from orchestrator.execution import attempt, runner
    from orchestrator.kinds.corpus import TokenizerKind
    from orchestrator.kinds.pretrain import PretrainKind
    from orchestrator.registry.recorder import RunOutcome

    work = WORK[sys.argv.pop(1)]
    kinds: tuple[Any, ...] = (TokenizerKind, PretrainKind)
    for replaced in kinds:
        replaced.run = lambda kind, spec, inputs, context: work(context)
        replaced.record = lambda kind, result, run_id, recorder: RunOutcome()
        replaced.settle_precision = lambda kind, spec, inputs: spec
    changed: Any = runner
    changed.connect = lambda settings, **options: nullcontext()
    changed.check_capacity = lambda *arguments: None
    changed = attempt
    changed.metered = partial(attempt.metered, interval_s=0.05)
    entry.main()


if __name__ == "__main__":
    main()
