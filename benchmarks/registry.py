"""Speed of the registry: recording points, finding runs, keeping a sweep's books.

    python benchmarks/registry.py [URL]      # SQLite in a temporary folder when left out

Prints a table; the numbers of record are in benchmarks/results/.
"""

import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from orchestrator.registry import Registry
from orchestrator.results import MetricEvent, TrialResult, TrialStart
from orchestrator.run_states import RunState

NUM_SINGLE, NUM_BUFFERED, BUFFER, NUM_RUNS, NUM_TRIALS = 2_000, 200_000, 1_000, 10_000, 2_000


def seconds(work: Callable[[], object], repeat: int = 1) -> float:
    """The best of several times."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        location = sys.argv[1] if len(sys.argv) > 1 else str(Path(folder) / "registry.sqlite")
        with Registry(location) as registry:
            registry.upgrade()
            lines = [*recording(registry), *searching(registry), *bookkeeping(registry)]
    print(f"Python {platform.python_version()}, {platform.machine()}\n")
    print("| what | measured |\n| --- | --- |")
    for what, measured in lines:
        print(f"| {what} | {measured} |")


def recording(registry: Registry) -> list[tuple[str, str]]:
    """Points per second, one commit each and a thousand in one."""
    one = new_run(registry)
    events = [MetricEvent(step, "train", {"loss": 1.0 / (step + 1)}) for step in range(NUM_BUFFERED)]
    single = seconds(lambda: [registry.metrics.record(one, [event]) for event in events[:NUM_SINGLE]])
    many = new_run(registry)
    batches = [events[start : start + BUFFER] for start in range(0, NUM_BUFFERED, BUFFER)]
    buffered = seconds(lambda: [registry.metrics.record(many, batch) for batch in batches])
    return [
        ("points/s, each committed", f"{NUM_SINGLE / single:,.0f}"),
        (f"points/s, {BUFFER:,} in a commit", f"{NUM_BUFFERED / buffered:,.0f}"),
    ]


def searching(registry: Registry) -> list[tuple[str, str]]:
    """Milliseconds for the first hundred of ten thousand runs, from the query's text to the DataFrame."""
    numbers = random.Random(0)
    sweeps = [new_run(registry) for _ in range(NUM_RUNS // 1_000)]
    for sweep in sweeps:
        registry.trials.record(sweep, [trial(number, numbers.random()) for number in range(1_000)])
    queries = {
        "by metric, best first": ("metrics.f1 > 0.5", "-metrics.f1"),
        "by metric, newest first": ("metrics.f1 > 0.5", "-created_at"),
        "a rare score": ("metrics.f1 > 0.999", "-created_at"),
        "metric and parameter": ("metrics.f1 > 0.9 and params.learning_rate < 2e-5", "-metrics.f1"),
    }
    return [
        (
            f"top 100 of {NUM_RUNS:,}, {name}: ms",
            f"{seconds(partial(registry.runs, query, sort=sort, limit=100), 7) * 1e3:.1f}",
        )
        for name, (query, sort) in queries.items()
    ] + [(f"all {NUM_RUNS:,} as a DataFrame: ms", f"{seconds(registry.runs) * 1e3:.0f}")]


def bookkeeping(registry: Registry) -> list[tuple[str, str]]:
    """Trials per second, started and ended in a commit each."""
    sweep = new_run(registry)
    trials = [trial(number, 0.5) for number in range(NUM_TRIALS)]

    def keep() -> None:
        for one in trials:
            registry.trials.record(sweep, [TrialStart(one.key, one.number, one.parameters, 0)])
            registry.trials.record(sweep, [one])

    return [("trials/s, started and ended, each committed", f"{NUM_TRIALS / seconds(keep):,.0f}")]


def trial(number: int, score: float) -> TrialResult:
    parameters = {"learning_rate": 1e-5 * (1 + number % 10), "epochs": 1 + number // 1_000}
    metrics = {"f1": score, "accuracy": score, "baseline.f1": 0.5}
    return TrialResult(f"k{number}", number, parameters, RunState.COMPLETED, 0, 100, metrics)


def new_run(registry: Registry) -> str:
    spec = {"recipe": {"learning_rate": 1e-4, "size": "tiny", "seed": 0, "epochs": 3.0, "init_from": "random"}}
    lifecycle = registry.lifecycle
    return lifecycle.create(kind="sweep", name="bench", fingerprint="f", spec=spec, task="sst2", metric="f1")


if __name__ == "__main__":
    main()
