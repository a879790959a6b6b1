"""Time of a run by recorded ones that did steps of the same work, where only the number of steps or trials differs."""

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from orchestrator.kinds.base import MeasuredTime
from orchestrator.kinds.trial_time import first_recipe, trials_at_a_time
from orchestrator.progress import counted
from orchestrator.registry.parameters import flatten
from orchestrator.registry.query_language import quoted
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.specs import PretrainSpec, RecipeSpec, SweepSpec
from orchestrator.specs.loading import spec_values

_NEWEST = 50
"""Recorded runs that are looked at."""
_FEWEST_STEPS = 20
"""Steps of a run from which on their time tells another's: starting is part of a run's seconds."""
_STEP_FIELDS = (
    *("model", "phases", "global_batch_size", "micro_batch_size", "threads_per_worker", "precision"),
    *("gradient_precision", "micro_batch_tokens", "execution.activation_checkpointing"),
    *("token_objective", "sentence_objective", "execution.num_workers", "execution.device"),
    *("execution.compile_layers", "execution.cuda_graphs", "execution.deterministic"),
)
"""Fields of a pretraining that decide how long a step takes."""
_TRIAL_FIELDS = (
    *("init_from", "size", "family", "max_seq_length", "batch_size", "epochs", "evaluations_per_epoch"),
    *("freeze_encoder", "precision", "long_documents", "window_stride", "train_fraction"),
)
"""Fields of a recipe that decide how long a trial takes."""


def similar_pretraining(spec: PretrainSpec, registry: Registry) -> MeasuredTime | None:
    """Return the time of a pretraining by the steps of the newest one whose steps were like its own; None without."""
    own = _step_values(flatten(spec_values(spec)))
    rows = registry.run_table(f"kind = '{spec.kind}'", trials=False, limit=_NEWEST).records
    for run in registry.run_records([str(row["id"]) for row in rows]):
        step = registry.metrics.last_step(run.id) or 0
        if run.seconds and step >= _FEWEST_STEPS and _step_values(registry.parameters(run.id)) == own:
            step_s = run.seconds / step
            by = f"{step_s:.2g} s a step of run {run.id}{_on_host(run)}"
            return MeasuredTime(step_s * spec.steps, f"{spec.steps:,} steps", by)
    return None


def similar_trials(spec: SweepSpec, registry: Registry, num_trials: int) -> MeasuredTime | None:
    """Return the time of a sweep by recorded trials of its task whose first recipe was like its own; None without."""
    recipe = first_recipe(spec)
    own = {name: getattr(recipe, name) for name in _TRIAL_FIELDS if hasattr(recipe, name)}
    task = quoted(spec.task.id)
    rows = registry.run_table(f"kind = 'trial' and state = 'COMPLETED' and task = {task}", limit=_NEWEST).records
    alike = [row for row in rows if row["seconds"] and all(_value(row, name) == own[name] for name in own)]
    if not alike:
        return None
    at_a_time = trials_at_a_time(spec, num_trials)
    each_s = fmean(row["seconds"] for row in alike)
    by = f"{each_s:.2g} s a trial, the mean of {counted(len(alike), 'recorded trial')}"
    of_what = f"{counted(num_trials, 'trial')}, {at_a_time:,} at a time"
    return MeasuredTime(each_s * math.ceil(num_trials / at_a_time), of_what, by)


def _value(row: Mapping[str, Any], name: str) -> Any:
    """Value of a field of the recipe; the default where the record is older than the field."""
    value = row.get(f"params.recipe.{name}", row.get(f"params.{name}"))
    return RecipeSpec.model_fields[name].default if value is None else value


def _step_values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that decide how long a step takes, by dotted path; those that are empty or off are left out."""
    return {
        path: value
        for path, value in parameters.items()
        if value not in (None, False, "never")
        and any(path == field or path.startswith(f"{field}.") for field in _STEP_FIELDS)
    }


def _on_host(run: RunRecord) -> str:
    return f" on {run.host}" if run.host else ""
