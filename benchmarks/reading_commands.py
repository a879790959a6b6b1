"""CPU time of the commands that only read, each in a process of its own.

    python benchmarks/reading_commands.py [ANOTHER_CHECKOUT]

With another checkout its commands are timed too, in turn with these, so that the machine's mood is the same for both.
Prints a table of seconds of CPU (user and system, the median of `NUM_ROUNDS`); the numbers of record are in
benchmarks/results/.
"""

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from orchestrator.base.results import MetricEvent, TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry

HERE = str(Path(__file__).resolve().parents[1])
NUM_ROUNDS, NUM_SWEEPS, NUM_TRIALS, NUM_STEPS = 5, 10, 12, 100
MAIN = "from orchestrator.cli import main; main()"


def main() -> None:
    checkouts = [HERE, *map(os.path.abspath, sys.argv[1:2])]
    with tempfile.TemporaryDirectory() as folder:
        location = str(Path(folder) / "registry.sqlite")
        sweep, trial = fill(location)
        commands = reading_commands(sweep, trial)
        print(f"Python {platform.python_version()}, {platform.machine()}; CPU s, median of {NUM_ROUNDS}\n")
        print("| command |" + "".join(f" {name} |" for name in ["here", "there"][: len(checkouts)]))
        print("| --- |" + " --- |" * len(checkouts))
        for words in commands:
            taken: dict[str, list[float]] = {checkout: [] for checkout in checkouts}
            for _ in range(NUM_ROUNDS):
                for checkout in checkouts:
                    taken[checkout].append(cpu_seconds(checkout, folder, words, location))
            cells = "".join(f" {median(taken[checkout]):.2f} |" for checkout in checkouts)
            print(f"| `{' '.join(words).replace(sweep, 'SWEEP').replace(trial, 'TRIAL')}` |{cells}", flush=True)


def reading_commands(sweep: str, trial: str) -> list[list[str]]:
    """The command lines that are timed, by the ids of a sweep and of one of its trials."""
    lines = f"""--help
        runs list
        runs show {sweep}
        runs show {trial}
        compare {sweep} {trial}
        runs reproduce {sweep}
        runs trials {sweep}
        runs metrics {trial}
        models list
        leaderboard
        query|metrics.accuracy > 0.5
        schema
        schema sweep
        run nothere.yaml
        plan nothere.yaml"""
    return [[*words.split(), *rest] for words, *rest in (line.split("|") for line in lines.splitlines())]


def fill(location: str) -> tuple[str, str]:
    """Record some sweeps with trials and curves; returns the ids of one sweep and of one trial."""
    with Registry(location) as registry:
        registry.upgrade()
        for number in range(NUM_SWEEPS):
            spec = {"kind": "sweep", "task": {"id": "sst2"}, "recipe": {"size": "tiny", "epochs": 3}}
            sweep = registry.lifecycle.create(kind="sweep", name=f"sweep-{number}", fingerprint="f" * 64, spec=spec)
            registry.trials.set_metric(sweep, "sst2", "accuracy")
            results = [
                TrialResult(
                    f"k{trial}",
                    trial,
                    {"learning_rate": 1e-5 * (1 + trial // 3)},
                    RunState.COMPLETED,
                    trial % 3,
                    metrics={"accuracy": 0.5 + trial / 100},
                )
                for trial in range(NUM_TRIALS)
            ]
            trials = registry.trials.record(sweep, results)
            events = [MetricEvent(step, "train", {"loss": 1.0 / (step + 1)}) for step in range(NUM_STEPS)]
            registry.metrics.record(trials[0], events)
    return sweep, trials[0]


def cpu_seconds(checkout: str, folder: str, words: list[str], location: str) -> float:
    """CPU seconds of one command of a checkout, its children included."""
    environment = os.environ | {"PYTHONPATH": checkout, "ORCHESTRATOR_HOME": folder, "ORCHESTRATOR_REGISTRY": location}
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0  # it has been waited for
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
