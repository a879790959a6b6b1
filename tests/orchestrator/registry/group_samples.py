"""Sweeps, trials and evaluations for tests of groups: small, and recorded as a driver does."""

from typing import Any

from sqlalchemy import update

from orchestrator.base.results import MetricEvent, TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from orchestrator.registry.group_records import GroupRecord, GroupRun
from orchestrator.registry.tables import ALL_RUNS
from tests.orchestrator.registry.samples import new_run, trial_result

RECIPE = {"learning_rate": 1e-4, "size": "tiny", "seed": 0, "init_from": "random", "epochs": 3.0}


def new_sweep(registry: Registry, **task: Any) -> str:
    spec = {"kind": "sweep", "task": {"id": "sst2", **task}, "recipe": RECIPE, "search_seed": 5}
    return new_run(registry, kind="sweep", name="sweep", spec=spec, task="sst2", metric="accuracy")


def scored(key: str, score: float, seed: int = 0, **changes: Any) -> TrialResult:
    metrics = {"accuracy": score, "baseline.accuracy": 0.5}
    return trial_result(key, **({"seed": seed, "metrics": metrics, "best_step": 7} | changes))


def seeds(registry: Registry, scores: list[float], *, first: int = 0, sweep: str = "", **parameters: Any) -> str:
    """Record a sweep of one group, a trial for each score, and return its id."""
    sweep = sweep or new_sweep(registry)
    key = repr(sorted(parameters.items()))
    trials = [
        scored(f"{key}{seed}", score, seed, number=seed, parameters=parameters)
        for seed, score in enumerate(scores, start=first)
    ]
    registry.trials.record(sweep, trials)
    return sweep


def scored_on(registry: Registry, validation: str, score: float, seed: int = 0, train: str = "t1", **spec: Any) -> str:
    """A sweep of one trial on these data."""
    sweep = new_sweep(registry, **spec)
    registry.trials.set_data(sweep, {"train": train, "validation": validation})
    registry.trials.record(sweep, [scored("k", score, seed)])
    return sweep


def set_code(registry: Registry, sweep: str, code: str) -> None:
    """Put a version of the code into a run's row, as an attempt does."""
    with registry._database.connection(writing=True) as connection:
        connection.execute(update(ALL_RUNS).where(ALL_RUNS.c.id == sweep).values(code_version=code))


def evaluated(
    registry: Registry,
    split: str,
    data: str,
    score: float,
    model: str = "m@1",
    *,
    file: str | None = None,
    digest: str = "d" * 16,
    predictions_path: str | None = None,
    **digests: str | None,
) -> str:
    """Record an evaluation of a model on data, and return its id.

    Args:
        file: digest of the data's file; None as of an evaluation of before it was recorded, as of other `digests`.
        digest: the beginning of the model's own.
    """
    spec = {"kind": "evaluate", "model": model, "task": {"id": "sst2"}, "split": split}
    run = new_run(registry, kind="evaluate", spec=spec, task="sst2", metric="accuracy")
    registry.lifecycle.start_attempt(run)
    recorded = {split: data, "model": digest, f"{split}_file": file, **digests}
    registry.trials.set_data(run, {name: value for name, value in recorded.items() if value is not None})
    registry.metrics.record(run, [MetricEvent(0, split, {"accuracy": score})], final=True)
    registry.lifecycle.finish(run, RunState.COMPLETED, predictions_path=predictions_path)
    return run


def group_of(key: str, scores: list[float], metric: str = "accuracy") -> GroupRecord:
    """A group of completed trials, a seed for each score."""
    runs = [
        GroupRun(f"{key}{seed}", seed, None, RunState.COMPLETED, score, parent_id="sweep")
        for seed, score in enumerate(scores)
    ]
    return GroupRecord(key, "sweep", "sst2", metric, "validation", runs, parameters={"recipe.key": key})
