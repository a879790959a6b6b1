"""What a trial costs beside its training: sweeps of trials that train for one step, few and many, on one local Ray.

    OMP_NUM_THREADS=1 python benchmarks/sweep_overhead.py --trials 100

The difference between the two sweeps, by the number of trials that they differ in, is what one more trial takes of the
wall clock: Tune's bookkeeping, the trial's process, reading the task, validation, predictions, weights, the registry.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from orchestrator import run
from orchestrator.cluster.connection import connect
from orchestrator.settings import Settings

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=100, help="trials of the larger sweep")
    num_trials = parser.parse_args().trials
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
