"""CPU time of writing: a measurement, buffered measurements and a trial's books, against MLflow and Optuna in one run.

    python -m benchmarks.registry_writing [--mlflow PYTHON] [--server URL] [--clock cpu] [--rounds 7]

PYTHON is an interpreter in which MLflow is installed, such as that of a virtual environment of its own; without it
MLflow is left out. All keep an SQLite file in a temporary folder, or each an empty database of a PostgreSQL server: the
URL has {} where the databases `here`, `mlflow` and `optuna` are named. Each round does the same work on all sides, one
after another, so that the machine's mood is the same for all; figures are medians of process CPU, in which a server's
own time is not, or with `--clock wall` of the wall clock; ratios are medians of the rounds' ratios. A trial has 20
parameters and 3 reports, each change committed on its own. Also printed: how long 16 processes that write at once wait
for one another. The numbers of record are in benchmarks/results/.
"""

import argparse
import multiprocessing
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

import optuna

from orchestrator.base.results import MetricEvent, TrialEvents, TrialResult, TrialStart
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry

NUM_PARAMETERS, NUM_WRITERS, WRITING_S = 20, 16, 10.0
CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}
Side = Callable[[str, int], float]
"""Seconds of some work: `points`, `batch100`, `batch1000` or `trials`, so many of them."""
WORK = {"points": 200, "batch100": 5_000, "batch1000": 10_000, "trials": 30}
NAMES = {
    "points": "a point, committed",
    "batch100": "a point, 100 a commit",
    "batch1000": "a point, 1,000 a commit",
    "trials": "a trial: 20 parameters, 3 reports",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mlflow", metavar="PYTHON")
    parser.add_argument("--server", metavar="URL", default="")
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = options.server.replace("postgresql://", "postgresql+psycopg://") or f"sqlite:///{folder}/{{}}.sqlite"
        location = options.server.format("here") or f"{folder}/here.sqlite"
        with mlflow_side(options.mlflow, url.format("mlflow"), options.clock) as mlflow:
            clock = CLOCKS[options.clock]
            sides = {"here": own_side(location, clock), "Optuna": optuna_side(url.format("optuna"), clock)}
            sides |= {"MLflow": mlflow} if mlflow else {}
            print_table(sides, options.rounds, options.clock)
        waits = sorted(wait for waits in write_together(location) for wait in waits)
    p99 = quantiles(waits, n=100)[98]
    print(
        f"\n{NUM_WRITERS} processes for {WRITING_S:.0f} s: {len(waits):,} points, each committed; a point's wall clock:"
    )
    print(f"median {1e3 * median(waits):.3f} ms, p99 {1e3 * p99:.0f} ms, longest {1e3 * waits[-1]:.0f} ms")


def print_table(sides: dict[str, Side], num_rounds: int, clock: str) -> None:
    """Measure the sides and print the table."""
    print(f"Python {platform.python_version()}, {platform.machine()}; ms of {clock}, medians of {num_rounds} rounds\n")
    print("| what | here | MLflow | ratio | Optuna | ratio |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    for work, number in WORK.items():
        print(f"| {NAMES[work]} |{compare(sides, work, number, num_rounds)}", flush=True)


def compare(sides: dict[str, Side], work: str, number: int, num_rounds: int) -> str:
    """Cells of a line of the table."""
    able = {name: side for name, side in sides.items() if name != "Optuna" or work == "trials"}
    taken: dict[str, list[float]] = {name: [] for name in able}
    for _ in range(num_rounds + 1):
        for name, side in able.items():
            taken[name].append(1e3 * side(work, number) / number)
    taken = {name: times[1:] for name, times in taken.items()}  # the first round warms up
    cells = f" {median(taken['here']):.4f} |"
    for name in ("MLflow", "Optuna"):
        if name in taken:
            ratio = median(theirs / ours for theirs, ours in zip(taken[name], taken["here"], strict=True))
            cells += f" {median(taken[name]):.4f} | {ratio:.1f}× |"
        else:
            cells += " | |"
    return cells


def own_side(location: str, clock: Callable[[], float] = time.process_time) -> Side:
    """The registry's side."""
    registry = Registry(location)
    registry.upgrade()
    run = new_sweep(registry)
    steps = iter(range(10**9))

    def record(size: int, number: int) -> None:
        for _ in range(number // size):
            registry.metrics.record(run, [MetricEvent(next(steps), "train", {"loss": 1.0}) for _ in range(size)])

    def work(word: str, number: int) -> float:
        begun = clock()
        if word == "points":
            record(1, number)
        elif word == "trials":
            for _ in range(number):
                keep_trial(registry, run, next(steps))
        else:
            record(int(word.removeprefix("batch")), number)
        return clock() - begun

    return work


def new_sweep(registry: Registry) -> str:
    recipe = {f"p{i}": 0.5 for i in range(NUM_PARAMETERS)}
    spec = {"kind": "sweep", "recipe": recipe}
    return registry.lifecycle.create(kind="sweep", name="b", fingerprint="f", spec=spec, task="sst2", metric="f1")


def keep_trial(registry: Registry, sweep: str, number: int) -> None:
    """Record a trial as its sweep's driver does, each change in a transaction of its own."""
    key, parameters = f"k{number}", {f"p{i}": 0.01 * i for i in range(NUM_PARAMETERS)}
    registry.trials.record(sweep, [TrialStart(key, number, parameters, 0)])
    for report in range(3):
        registry.trials.record(sweep, [TrialEvents(key, [MetricEvent(report, "validation", {"f1": 0.5})])])
    registry.trials.record(sweep, [TrialResult(key, number, parameters, RunState.COMPLETED, 0, 2, {"f1": 0.5})])


def optuna_side(url: str, clock: Callable[[], float]) -> Side:
    """Optuna's side, with its storage in a database."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.RDBStorage(url)
    study = optuna.create_study(storage=storage, sampler=optuna.samplers.RandomSampler())

    def work(word: str, number: int) -> float:
        begun = clock()
        for _ in range(number):
            trial = study.ask()
            for parameter in range(NUM_PARAMETERS):
                trial.suggest_float(f"p{parameter}", 0.0, 1.0)
            for step in range(3):
                trial.report(0.5, step)
            study.tell(trial, 0.5)
        return clock() - begun

    return work


@contextmanager
def mlflow_side(python: str | None, url: str, clock: str) -> Iterator[Side | None]:
    """MLflow's side, in a process of another Python."""
    if python is None:
        yield None
        return
    worker = subprocess.Popen(
        [python, Path(__file__).with_name("_mlflow_worker.py"), url, clock],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    requests, answers = worker.stdin, worker.stdout
    print(f"MLflow {answers.readline().strip()}, Optuna {optuna.__version__}")

    def work(word: str, number: int) -> float:
        requests.write(f"{word} {number}\n")
        requests.flush()
        return float(answers.readline())

    yield work
    requests.close()
    worker.wait()


def write_together(location: str) -> list[list[float]]:
    """Waits of several processes that write all the time, each into a run of its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(NUM_WRITERS) as pool:
        return pool.map(write_alone, [location] * NUM_WRITERS, chunksize=1)


def write_alone(location: str) -> list[float]:
    waits: list[float] = []
    with Registry(location) as registry:
        run, begun = new_sweep(registry), time.monotonic()
        while (start := time.monotonic()) < begun + WRITING_S:
            registry.metrics.record(run, [MetricEvent(len(waits), "train", {"loss": 1.0})])
            waits.append(time.monotonic() - start)
    return waits


if __name__ == "__main__":
    main()
