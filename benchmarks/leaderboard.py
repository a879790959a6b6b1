"""CPU time of the leaderboard over groups of trials, and how it grows with their number.

    python -m benchmarks.leaderboard [GROUPS …]    # 137, 274, 685, 1370 and 2740 when left out

Each group has five seeds, in sweeps of 20 groups; recipes have 24 fields, of which three vary. Milliseconds of this
process's CPU, the best of three rounds; the numbers of record are in benchmarks/results/.
"""

import platform
import random
import sys
import tempfile
import time
from pathlib import Path

from orchestrator.base.results import TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry

NUM_GROUPS = (137, 274, 685, 1_370, 2_740)
NUM_SEEDS, GROUPS_OF_A_SWEEP, NUM_ROUNDS, NUM_FIXED_FIELDS = 5, 20, 3, 20


def main() -> None:
    print(f"Python {platform.python_version()}, {platform.machine()}\n")
    print("| groups | trials | first ten places, CPU ms | whole board, CPU ms |\n| ---: | ---: | ---: | ---: |")
    for num_groups in [int(word) for word in sys.argv[1:]] or NUM_GROUPS:
        with tempfile.TemporaryDirectory() as folder, Registry(str(Path(folder) / "registry.sqlite")) as registry:
            fill(registry, num_groups)
            first, whole = (min(cpu_ms(registry, limit) for _ in range(NUM_ROUNDS)) for limit in (10, None))
            num_rows = len(registry.leaderboard().records)
            assert num_rows == num_groups, f"{num_rows} groups, {num_groups} were recorded"
            print(f"| {num_groups:,} | {num_groups * NUM_SEEDS:,} | {first:.0f} | {whole:.0f} |", flush=True)


def fill(registry: Registry, num_groups: int) -> None:
    """Record groups of one task, whose scores differ."""
    rng = random.Random(0)
    fixed = {f"field_{number}": number for number in range(NUM_FIXED_FIELDS)}
    for first in range(0, num_groups, GROUPS_OF_A_SWEEP):
        recipe = {"size": "tiny", "init_from": "reviews/pretraining@1", "learning_rate": 1e-5, "seed": 0, **fixed}
        spec = {"kind": "sweep", "task": {"id": "mrpc", "max_train_examples": first + 1}, "recipe": recipe}
        sweep = registry.lifecycle.create(
            kind="sweep", name="sweep", fingerprint="f" * 64, spec=spec, task="mrpc", metric="f1"
        )
        registry.trials.set_data(sweep, {"train": "t" * 16, "validation": "v" * 16})
        registry.trials.record(sweep, list(trials(rng, range(first, min(first + GROUPS_OF_A_SWEEP, num_groups)))))
        registry.lifecycle.finish(sweep, RunState.COMPLETED)


def trials(rng: random.Random, groups: range) -> list[TrialResult]:
    """The trials of some groups."""
    return [
        TrialResult(
            f"{group}-{seed}",
            number=group * NUM_SEEDS + seed,
            parameters={"learning_rate": 1e-5 * (1 + group), "batch_size": 16 * (1 + group % 3)},
            state=RunState.COMPLETED,
            seed=seed,
            metrics={"f1": rng.gauss(0.85, 0.01), "baseline.f1": 0.5, "collapsed": 0.0},
        )
        for group in groups
        for seed in range(NUM_SEEDS)
    ]


def cpu_ms(registry: Registry, limit: int | None) -> float:
    """Milliseconds of CPU of one leaderboard, of its first places or of all."""
    begun_at = time.process_time()
    registry.leaderboard("mrpc", limit=limit)
    return 1_000 * (time.process_time() - begun_at)


if __name__ == "__main__":
    main()
