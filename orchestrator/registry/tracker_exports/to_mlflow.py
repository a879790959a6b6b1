"""An MLflow store in a SQLite file, written by MLflow's own client; trials are nested runs."""

from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NAME, MLFLOW_RUN_NOTE

from orchestrator.registry.tracker_exports.exported_run import ExportedRun

_OUR_ID = "orchestrator.run_id"
_ROWS_AT_ONCE = 500
_LONGEST_PARAMETER = 6_000
"""MLflow refuses longer values."""
_STATUS = {"COMPLETED": "FINISHED", "FAILED": "FAILED", "STOPPED": "KILLED", "PRUNED": "KILLED"}


def write_run(run: ExportedRun, folder: Path) -> None:
    """Write a run; one that is there already, by its id here, is replaced."""
    client = MlflowClient(tracking_uri=f"sqlite:///{folder.absolute() / 'mlflow.db'}")
    experiment = _experiment(client, run.record.experiment, folder)
    for known in _found(client, experiment, run.record.id):
        client.delete_run(known)
    parents = _found(client, experiment, run.record.parent_id)
    tags = {_OUR_ID: run.record.id, "kind": run.record.kind, MLFLOW_RUN_NAME: run.title, "tags": ", ".join(run.tags)}
    tags |= {MLFLOW_PARENT_RUN_ID: parents[0]} if parents else {}
    tags |= {MLFLOW_RUN_NOTE: "\n\n".join(run.notes)} if run.notes else {}
    started = run.record.started_at or run.record.created_at
    begun = _milliseconds(started.timestamp())  # of all measurements: a history here has steps, and no times
    created = client.create_run(experiment, start_time=begun, run_name=run.title)
    new_id = created.info.run_id
    metrics = [Metric(one.name, one.value, begun, one.step) for one in run.measurements]
    parameters = [Param(path, str(value)[:_LONGEST_PARAMETER]) for path, value in run.parameters.items()]
    for start in range(0, len(metrics), _ROWS_AT_ONCE):
        client.log_batch(new_id, metrics=metrics[start : start + _ROWS_AT_ONCE])
    for start in range(0, len(parameters), 100):
        client.log_batch(new_id, params=parameters[start : start + 100])
    client.log_batch(new_id, tags=[RunTag(key, value) for key, value in tags.items()])
    ended = run.record.finished_at
    status = _STATUS.get(str(run.record.state), "RUNNING")
    client.set_terminated(new_id, status, None if ended is None else _milliseconds(ended.timestamp()))


def _experiment(client: MlflowClient, name: str, folder: Path) -> str:
    known = client.get_experiment_by_name(name)
    if known is not None:
        return str(known.experiment_id)
    return str(client.create_experiment(name, artifact_location=(folder.absolute() / "artifacts").as_uri()))


def _found(client: MlflowClient, experiment: str, run_id: str | None) -> list[str]:
    if run_id is None:
        return []
    return [str(run.info.run_id) for run in client.search_runs([experiment], f"tags.`{_OUR_ID}` = '{run_id}'")]


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)
