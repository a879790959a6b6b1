"""What a trial costs beside its training: sweeps of trials that train for one step, few and many, on one local Ray.

    OMP_NUM_THREADS=1 python benchmarks/sweep_overhead.py --trials 100
    OMP_NUM_THREADS=1 python benchmarks/sweep_overhead.py --bookkeeping 10000

With `--bookkeeping` no trial runs and no Ray starts: the driver's own bookkeeping of so many trials is measured in
seconds of CPU, with three evaluations each: queue, points, progress, journal; then the same with an SQLite registry,
which is written by a thread of its own.

Otherwise the difference between the two sweeps, by the number of trials that they differ in, is what one more trial
takes of the wall clock: Tune's bookkeeping, the trial's process, reading the task, validation, predictions, weights,
the registry.
"""

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from orchestrator import run
from orchestrator.base.results import MetricEvent, TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.cluster.connection import connect
from orchestrator.finetuning.search_space import TrialQueue
from orchestrator.finetuning.sweep_progress import SweepProgress
from orchestrator.finetuning.trial_journal import TrialJournal
from orchestrator.kinds.base import RunContext
from orchestrator.kinds.trial_recording import trial_recording
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder
from orchestrator.specs import SweepSpec
from orchestrator.specs.loading import spec_values

FEW = 4


def write_task(folder: Path) -> None:
    """Sixteen sentences of two kinds, and a vocabulary for them."""
    rows = [f"{word} {number} things,{word}" for number in range(8) for word in ("good", "bad")]
    (folder / "task.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "things", *map(str, range(8))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")


def write_sweep(folder: Path, num_trials: int) -> Path:
    """The spec of a sweep over seeds."""
    path = folder / f"sweep-{num_trials}.yaml"
    path.write_text(
        f"kind: sweep\n"
        f"task: {{id: kinds, head: classification, text_columns: [text], files: {{train: {folder}/task.csv, "
        f"validation: {folder}/task.csv}}}}\n"
        f"recipe: {{tokenizer: {folder}/vocab.txt, batch_size: 16, epochs: 1, max_seq_length: 16}}\n"
        f"seeds: [{', '.join(str(seed) for seed in range(num_trials))}]\n"
        f"execution: {{max_concurrent_trials: {os.cpu_count()}}}\n"
    )
    return path


class Silent:
    """A recorder that records nothing, and a status line that shows nothing."""

    def __init__(self) -> None:
        self.given_up = threading.Event()

    def __getattr__(self, name: str) -> "Silent":
        return self

    def __call__(self, *arguments: object) -> None:
        """Record and show nothing."""


def measure_bookkeeping(num_trials: int, folder: Path, with_registry: bool) -> float:
    """Seconds of CPU that the driver spends on trials which end at once."""
    spec = SweepSpec.model_validate(
        {
            "name": "bookkeeping",
            "task": {"id": "kinds", "head": "classification"},
            "recipe": {"tokenizer": "none"},
            "space": {"learning_rate": {"log_uniform": [1e-6, 1e-2]}},
            "search": "random",
            "trials": num_trials,
        }
    )
    settings = Settings.from_options(str(folder / "home"))
    with Registry(settings.registry) as registry:
        recorder: Any = Recorder(registry) if with_registry else Silent()
        run_id = Recorder(registry).start(spec_values(spec), spec.fingerprint()).id
        progress: Any = Silent()
        context = RunContext(run_id, 1, str(folder / run_id), settings, recorder, progress, threading.Event())
        journal = TrialJournal(context.run_folder)
        journal.begin({"data": "none"})
        begun_at = time.process_time()
        with trial_recording(context, journal) as listener:
            _end_all(SweepProgress(TrialQueue(spec, "f1", {}), "f1", {}, listener, _ignore, _ignore, _ignore, {}))
        return time.process_time() - begun_at


def _end_all(progress: SweepProgress) -> None:
    """Let every trial of a sweep start, report three evaluations and end."""
    while (plan := progress.queue.next()) is not None:
        progress.started(plan)
        scores = {"f1": plan.number % 997 / 997, "accuracy": 0.5}
        for step in (10, 20, 30):
            training = MetricEvent(step, "train", {"loss": 0.1, "learning_rate": 1e-3, "examples_per_s": 100.0})
            progress.reported(plan, (training, MetricEvent(step, "validation", scores)))
        result = TrialResult(plan.key, plan.number, plan.parameters, RunState.COMPLETED, plan.seed, 30, scores)
        progress.ended(plan, result)


def _ignore(result: TrialResult) -> None:
    """Do nothing with a trial's files: there are none."""


def print_bookkeeping(num_trials: int) -> None:
    """Measure and print the bookkeeping, without a registry and with one."""
    print(f"| bookkeeping of {num_trials:,} trials | CPU seconds |\n| --- | --- |")
    for what, with_registry in (("queue, progress, journal", False), ("the same and an SQLite registry", True)):
        with tempfile.TemporaryDirectory() as name:
            print(f"| {what} | {measure_bookkeeping(num_trials, Path(name), with_registry):.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=100, help="trials of the larger sweep")
    parser.add_argument("--bookkeeping", type=int, help="trials that only the driver's bookkeeping knows")
    given = parser.parse_args()
    if given.bookkeeping is not None:
        print_bookkeeping(given.bookkeeping)
        return
    num_trials = given.trials
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_task(folder)
        settings = Settings.from_options(str(folder / "home"))
        seconds = {}
        with connect(settings, num_cpus=float(os.cpu_count() or 1)):
            for count in (FEW, FEW, num_trials):  # the first time, processes start and import
                start = time.perf_counter()
                run(write_sweep(folder, count), home=str(folder / "home"))
                seconds[count] = time.perf_counter() - start
    more = (seconds[num_trials] - seconds[FEW]) / (num_trials - FEW)
    print("| what | seconds |\n| --- | --- |")
    for count, spent in seconds.items():
        print(f"| a sweep of {count} trials | {spent:.2f} |")
    print(f"| one more trial | {more:.2f} |")


if __name__ == "__main__":
    main()
