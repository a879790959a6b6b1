"""CPU time of reading a big registry: the questions that commands ask, warm, in this process.

    python -m benchmarks.registry_reading [LOCATION] [--sweeps 5000] [--commands]

Without a location a registry is made in a temporary folder (`benchmarks/generated_registry.py`). `--commands` times the
commands themselves too, each in a process of its own. Milliseconds of this process's CPU, and of the wall clock, in
which a PostgreSQL server's own time is; medians of several rounds in which the questions take turns. The numbers of
record are in benchmarks/results/.
"""

import argparse
import platform
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.generated_registry import RARE_TAG, fill
from benchmarks.reading_commands import HERE, cpu_seconds
from orchestrator.registry import Registry
from orchestrator.registry.costs import usages_of

NUM_ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("location", nargs="?")
    parser.add_argument("--sweeps", type=int, default=50)
    parser.add_argument("--commands", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        location = options.location or str(Path(folder) / "registry.sqlite")
        with Registry(location) as registry:
            if registry.num_runs() == 0:
                fill(registry, options.sweeps)
        with Registry(location, read_only=True) as registry:
            print(f"{registry.num_runs():,} runs; Python {platform.python_version()}, {platform.machine()}")
            print("\n| question | CPU ms | wall ms |\n| --- | ---: | ---: |")
            for name, (cpu, wall) in timed(questions(registry)).items():
                print(f"| {name} | {cpu:.1f} | {wall:.1f} |", flush=True)
        if options.commands:
            print("\n| command | CPU s |\n| --- | ---: |")
            time_commands(location, folder)


def questions(registry: Registry) -> dict[str, Callable[[], object]]:
    """Questions by name: queries as `orchestrator query` asks them, then the other lists."""
    newest = registry.run_table(limit=1, trials=False).records[0]["id"]
    asked: dict[str, Callable[[], object]] = {}
    for query, sort, limit in (
        ("", "-created_at", 30),
        ("metrics.f1 > 0.5", "-metrics.f1", 10),
        ("task = 'mrpc' and metrics.f1 > 0.5", "-metrics.f1", 10),
        ("metrics.f1 > 0.5", "-created_at", 100),
        ("metrics.f1 > 0.90", "-created_at", 100),
        ("metrics.f1 > 0.99", "-created_at", 100),
        ("metrics.f1 > 0.8 and metrics.loss < 0.5 and params.learning_rate < 3e-5", "-metrics.f1", 100),
        ("task = 'mrpc' and params.size = 'base'", "-created_at", 100),
        (f"tag = '{RARE_TAG}'", "-created_at", 100),
        (f"not tag = '{RARE_TAG}'", "-created_at", 100),
        ("name like '%mrpc-3%' and seed in (7, 8)", "-created_at", 100),
        ("params.learning_rate < 1.001e-5", "-created_at", 100),
        ("", "-params.learning_rate", 30),
        ("", "params.learning_rate", 30),
        ("task = 'rte'", "-params.learning_rate", 30),
        ("state = 'failed'", "-created_at", 30),
    ):
        name = f"`{query or 'all'}` by {sort}, first {limit}"
        asked[name] = partial(registry.run_table, query, sort=sort, limit=limit)
    asked["newest 30 without trials"] = partial(registry.run_table, limit=30, trials=False)
    asked["how many are `metrics.f1 > 0.5`"] = partial(registry.num_runs, "metrics.f1 > 0.5")
    asked["how many without trials"] = partial(registry.num_runs, trials=False)
    asked["trials of a sweep"] = partial(registry.trials.table, newest)
    asked["a run by its prefix"] = partial(registry.run, newest[:8])
    asked["registered models, first 30"] = partial(registry.models.table, limit=30)
    asked["leaderboard, first 10 of each task"] = partial(registry.leaderboard, limit=10)
    asked["leaderboard of mrpc, first 10"] = partial(registry.leaderboard, "mrpc", limit=10)
    asked["every group of mrpc"] = partial(registry.leaderboard, "mrpc")
    asked["usage of the runs of mrpc"] = partial(usage_of_task, registry, "mrpc")
    asked["trials by task, their scores"] = partial(registry.grouped, "task", "kind = 'trial'")
    return asked


def usage_of_task(registry: Registry, task: str) -> object:
    """Sum of what the runs of a task have taken, as `orchestrator cost` asks for it."""
    return usages_of(registry.find_records(f"kind != 'pipeline' and task = '{task}'"), registry)


def timed(asked: dict[str, Callable[[], object]]) -> dict[str, tuple[float, float]]:
    """The median times of each question, of CPU and of the wall clock, in turns."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
    for _ in range(NUM_ROUNDS + 1):
        for name, ask in asked.items():
            cpu, wall = time.process_time(), time.perf_counter()
            ask()
            taken[name].append((1e3 * (time.process_time() - cpu), 1e3 * (time.perf_counter() - wall)))
    return {  # the first is not warm
        name: (median(cpu for cpu, _ in times[1:]), median(wall for _, wall in times[1:]))
        for name, times in taken.items()
    }


def time_commands(location: str, folder: str) -> None:
    """Print the CPU time of each reading command, its start included."""
    with Registry(location, read_only=True) as registry:
        sweep = registry.run_table(limit=1, trials=False).records[0]["id"]
    commands = ["runs list", f"runs show {sweep}", f"runs trials {sweep}", f"runs metrics {sweep}", "models list"]
    lines = [command.split() for command in commands]
    lines += [["query", "metrics.f1 > 0.90", "--limit", "30"], ["query", f"tag = '{RARE_TAG}'"]]
    lines += [["query", "metrics.f1 > 0.5", "--sort", "-params.learning_rate", "--limit", "30"]]
    lines += [["leaderboard"], ["leaderboard", "mrpc"], ["leaderboard", "mrpc", "--all"]]
    lines += [["cost", "mrpc"], ["cost", "--since", "2000d"], ["query", "kind='trial'", "--group-by", "task"]]
    taken: dict[str, list[float]] = {" ".join(words): [] for words in lines}
    for _ in range(NUM_ROUNDS):
        for words in lines:
            taken[" ".join(words)].append(cpu_seconds(HERE, folder, words, str(Path(location).resolve())))
    for name, times in taken.items():
        print(f"| `{name}` | {median(times):.2f} |")


if __name__ == "__main__":
    main()
