"""A registry with a run of each kind, as rich as real ones are: the demo's pipeline, its stages, a failed run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from orchestrator.provenance.made_with import MadeWith
from orchestrator.provenance.source_code import SourceCode
from orchestrator.registry import Registry
from orchestrator.registry.records import AttemptCostRecord
from orchestrator.results import CheckpointEvent, DatasetResult, MetricEvent, ModelResult, TrialResult
from orchestrator.run_states import RunState
from orchestrator.specs.loading import parse_spec, spec_values

_DEMO = Path(__file__).parents[3] / "orchestrator" / "demo" / "pipeline.yaml"
_HOME = "/home/someone/experiments/reviews/.orchestrator"
_MACHINE = {
    "processor": "AMD EPYC 9654 96-Core Processor",
    "num_cores": 192,
    "memory_bytes": 768 * 2**30,
    "gpus": ["NVIDIA H200", "NVIDIA H200"],
    "gpu_driver": "570.133.20",
    "user": "someone",
    "hostname": "head-0.cluster.example",
    "versions": {"python": "3.11.9", "torch": "2.11.0", "cuda": "12.8", "ray": "2.51.0"},
}
_CODE = SourceCode("0.1.0", "4ea8dd0e6ef0aa11bb22cc33dd44ee55ff667788", None, "d" * 64, 812, ("bert_core/model.py",))
_MADE_WITH = MadeWith(_CODE, "orchestrator run experiments/demo.yaml --name demo", (), _MACHINE)
_PROBE = {
    "kind": "probe",
    "pretraining": "@pretraining",
    "task": {"id": "kinds", "head": "classification"},
}
_EVALUATE = {"kind": "evaluate", "model": "kinds@1", "task": {"id": "sst2"}}
_DISTILL = {"kind": "distill", "teacher": "kinds@1", "num_hidden_layers": 1, "task": {"id": "sst2"}}


def add_runs_of_each_kind(registry: Registry) -> dict[str, str]:
    """Record the runs; their ids by kind, `trial` and `failed` among them."""
    demo = yaml.safe_load(_DEMO.read_text())
    ids = {"pipeline": _add(registry, "demo", demo)}
    for name, stage in demo["stages"].items():
        ids[str(stage["kind"])] = _add(registry, f"demo/{name}", stage, pipeline=ids["pipeline"])
    _pretrain(registry, ids["pretrain"])
    _sweep(registry, ids["sweep"])
    ids["trial"] = str(registry.trials.table(ids["sweep"]).records[1]["id"])
    ids["evaluate"] = _add(registry, "again", _EVALUATE)
    ids["distill"] = _add(registry, "small", _DISTILL)
    for kind in ("evaluate", "distill"):
        scores = {"accuracy": 0.91, "agreement": 0.96, "loss": 0.31, "baseline.accuracy": 0.51, "num_examples": 872.0}
        registry.metrics.record(ids[kind], [MetricEvent(0, "validation", scores)], final=True)
    ids["failed"] = _add(registry, "broken", demo["stages"]["names"], ends=False)
    problem = "trial 2 failed on node 10.0.0.7: CUDA out of memory; give recipe.micro_batch_size=8, or a larger GPU"
    registry.lifecycle.finish(ids["failed"], RunState.FAILED, error=problem, seconds=9.0)
    registry.lifecycle.finish(ids["pipeline"], RunState.COMPLETED, seconds=312.0)
    return ids


def _add(
    registry: Registry, name: str, values: Mapping[str, Any], *, pipeline: str | None = None, ends: bool = True
) -> str:
    spec = parse_spec({"tags": [f"pipeline:{pipeline}"] if pipeline else [], **values})
    recorded = spec_values(spec)
    task = recorded.get("task") or {}
    run_id = registry.lifecycle.create(
        kind=spec.kind,
        name=name,
        fingerprint=spec.fingerprint(),
        spec=recorded,
        task=task.get("id"),
        metric="accuracy" if task else None,
        tags=recorded["tags"],
    )
    folder = f"{_HOME}/storage/runs/{run_id}"
    with registry._database.session(writing=True) as session:
        session.connection().exec_driver_sql("UPDATE runs SET storage_path = ? WHERE id = ?", (folder, run_id))
    registry.lifecycle.start_attempt(run_id, host="head-0.cluster.example", pid=4_711, made_with=_MADE_WITH)
    registry.costs.record(AttemptCostRecord(run_id, 1, 60.0, 118.0, 120.0, "NVIDIA H200"))
    path = f"{_HOME}/storage/data/{name}"
    counts = {"num_train_examples": 67_349, "num_validation_examples": 872, "num_train_tokens": 1_032_199}
    kind = "task" if task else "corpus"
    registry.datasets.record(run_id, DatasetResult(task.get("id") or "text", kind, f"{run_id:0>64}", path, counts))
    if ends and spec.kind != "pipeline":
        registry.lifecycle.finish(run_id, RunState.COMPLETED, seconds=60.0, model_folder=f"{folder}/model")
    if ends and spec.kind in ("pretrain", "distill", "sweep"):
        head = "pretraining" if spec.kind == "pretrain" else "classification"
        registry.models.register(name, ModelResult(f"{folder}/model", "c" * 64, 4_385_920, head), run_id)
    return run_id


def _pretrain(registry: Registry, run_id: str) -> None:
    for step in range(25, 1_201, 25):
        scores = {"mlm_loss": 9.0 - step / 200, "mlm_accuracy": step / 2_400, "nsp_loss": 0.6, "nsp_accuracy": 0.7}
        speeds = {"learning_rate": 2e-3, "gradient_norm": 1.2, "tokens_per_s": 21_204.5, "seconds_per_step": 0.1}
        registry.metrics.record(run_id, [MetricEvent(step, "train", scores | speeds)])
    held_out = {"mlm_loss": 3.2, "mlm_accuracy": 0.41, "perplexity": 24.5, "nsp_loss": 0.5, "nsp_accuracy": 0.74}
    registry.metrics.record(run_id, [MetricEvent(1_200, "validation", held_out)], final=True)
    registry.checkpoints.record(run_id, [CheckpointEvent(1_200, f"{_HOME}/checkpoints/1200", "e" * 64, 50_000_000)])


def _sweep(registry: Registry, run_id: str) -> None:
    trials = [
        TrialResult(
            f"k{number}",
            number,
            {"init_from": ("@pretraining", "random")[number % 2], "learning_rate": 1e-3 * (1 + number // 2)},
            RunState.COMPLETED,
            seed=0,
            metrics={"accuracy": 0.80 + 0.03 * number, "loss": 0.5, "baseline.accuracy": 0.34, "f1": 0.8},
            seconds=14.0,
        )
        for number in range(4)
    ]
    for trial_id in registry.trials.record(run_id, trials):
        curve = [MetricEvent(step, "validation", {"accuracy": 0.7 + step / 1_000}) for step in (10, 20, 30)]
        registry.metrics.record(trial_id, curve)
    scores = {"accuracy": 0.89, "loss": 0.5, "f1": 0.8, "baseline.accuracy": 0.34, "num_examples": 300.0}
    registry.metrics.record(run_id, [MetricEvent(30, "validation", scores)], final=True)
