"""Outcomes of runs: digests of what a run consumed and left, by which two runs are compared. Speeds are left out."""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from orchestrator.measurements import is_of_the_machine
from orchestrator.pretraining.batch_trace import combine_digests, read_trace
from orchestrator.registry import Registry
from orchestrator.registry.queries.run_listing import RUN_COLUMNS
from orchestrator.settings import Settings
from orchestrator.storage import digest_file, join
from orchestrator.training.checkpoints import Checkpoints
from orchestrator.verification.child_runs import ChildRun

BATCHES = "batches"
"""Name of what does not depend on the number of workers."""

_OF_THE_CLOCK = RUN_COLUMNS.keys() - {"number", "seed", "state"}

Outcome = dict[str, str]
"""Digests by the name of what they are of."""


def pretraining_outcome(run: ChildRun, settings: Settings, num_steps: int) -> Outcome:
    """Digests of a pretraining: batches in their order, then weights and optimizer after the last step."""
    with Registry(settings.registry) as registry:
        folder = registry.run(run.run_id).storage_path
    assert folder is not None, "every run has a folder"
    newest = Checkpoints(folder).newest_first()[0]
    return {
        BATCHES: _rolling_digest(run, num_steps),
        "weights": digest_file(join(newest.path, "model.safetensors")),
        "optimizer": digest_file(join(newest.path, "optimizer.safetensors")),
    }


def task_outcome(run: ChildRun, settings: Settings) -> Outcome:
    """Digests of a sweep or a distillation on a task: scores of each trial, the model's weights, its predictions."""
    with Registry(settings.registry) as registry:
        record = registry.run(run.run_id)
        trials = registry.trials.frame(run.run_id)
        scores = registry.metrics.latest(run.run_id)
    rows: list[Mapping[Any, Any]] = [*trials.sort_values("number").to_dict("records"), scores]
    outcome = {"scores": _digest_of([_reproducible(row) for row in rows])}
    if record.model_folder is not None:
        outcome["weights"] = digest_file(join(record.model_folder, "model.safetensors"))
    if record.predictions_path is not None:
        outcome["predictions"] = digest_file(record.predictions_path)
    return outcome


def _rolling_digest(run: ChildRun, num_steps: int) -> str:
    """Digest of all batches from the first to the last, or which of them is missing."""
    batches = read_trace(run.trace)
    missing = [step for step in range(1, num_steps + 1) if step not in batches]
    return f"no batch for step {missing[0]}" if missing else combine_digests(batches.values())


def _reproducible(row: Mapping[Any, Any]) -> dict[str, str]:
    """Scores, parameters, number, seed and state of a trial: what no clock is part of."""
    return {
        str(name): "" if isinstance(value, float) and math.isnan(value) else str(value)
        for name, value in row.items()
        if name not in _OF_THE_CLOCK and not is_of_the_machine(str(name))
    }


def _digest_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
