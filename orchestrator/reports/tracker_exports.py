"""Runs written for other trackers (TensorBoard, MLflow, W&B), each by that tracker's own library.

A tracker is one function, `write(runs, folder)`, and a line in `TRACKERS`. Its library is loaded when it writes.
"""

import hashlib
import json
import logging
import math
import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from orchestrator.base.errors import InputError
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry

_OUR_ID = "orchestrator.run_id"
_ROWS_AT_ONCE, _PARAMETERS_AT_ONCE, _LONGEST_PARAMETER = 500, 100, 6_000  # MLflow refuses more
_STATUS = {"COMPLETED": "FINISHED", "FAILED": "FAILED", "STOPPED": "KILLED", "PRUNED": "KILLED"}
_LONGEST_NAME = 250


class Measurement(NamedTuple):
    """One value of a measurement; NaN where it was no number."""

    name: str
    """Name with its split: `train/loss`."""
    step: int
    value: float


@dataclass(frozen=True)
class ExportedRun:
    record: RunRecord
    parameters: Mapping[str, object]
    tags: Sequence[str]
    notes: Sequence[str]
    measurements: Sequence[Measurement]
    """Measurements in the order of their steps."""
    result: Mapping[str, float]
    """Latest value of each measurement, the kept model's where there is one."""

    @property
    def title(self) -> str:
        """Name that tells runs apart: a trial's has its number."""
        number = "" if self.record.number is None else f" trial {self.record.number}"
        return f"{self.record.name}{number}"

    @property
    def began_s(self) -> float:
        """Start of the run in seconds since 1970: the time of every measurement, since a history has only steps."""
        return (self.record.started_at or self.record.created_at).timestamp()


def load_runs(registry: Registry, where: str = "") -> list[ExportedRun]:
    """Load the runs that match a query, each with its trials; a refused test score is a note. Raises: InputError."""
    wanted = registry.run_ids(where)
    wanted += [str(trial) for run_id in wanted for trial in registry.trials.table(run_id).values("id")]
    places = {run_id: place for place, run_id in enumerate(dict.fromkeys(wanted))}
    refusals = registry.test_refusals(places)
    exported = []
    for run in sorted(registry.run_records(places), key=lambda run: (run.parent_id is not None, places[run.id])):
        history = sorted(registry.metrics.history(run.id).records, key=lambda row: row["step"])
        measurements = [Measurement(f"{row['split']}/{row['name']}", row["step"], row["value"]) for row in history]
        notes = [f"The test score is refused: {refusals[run.id]}."] if run.id in refusals else []
        notes += [note.text for note in registry.annotations.notes(run.id)]
        parameters, tags = registry.parameters(run.id), registry.annotations.tags(run.id)
        exported.append(ExportedRun(run, parameters, tags, notes, measurements, registry.metrics.latest(run.id)))
    return exported


def _write_events(runs: Iterable[ExportedRun], folder: Path) -> None:
    """Write event files of TensorBoard anew: scalars by step, parameters for its HParams page, texts.

    A run has a folder of its own, called by its id, and a trial one in that of its sweep.
    """
    from tensorboardX import SummaryWriter
    from tensorboardX.summary import hparams

    logging.getLogger("tensorboardX.x2num").setLevel(logging.ERROR)  # it warns of every NaN, which a history may hold
    for run in runs:
        place = folder / (run.record.parent_id or "") / run.record.id
        for old in place.glob("events.out.tfevents.*"):
            old.unlink()
        values = {path: value for path, value in run.parameters.items() if isinstance(value, bool | int | float | str)}
        finite = {name: value for name, value in run.result.items() if math.isfinite(value)}
        about = {"id": run.record.id, "name": run.title, "kind": run.record.kind, "state": str(run.record.state)}
        about |= {"tags": ", ".join(run.tags)}
        plain = {"run": about, "spec": dict(run.record.spec)}
        texts = {name: json.dumps(value, indent=2, ensure_ascii=False) for name, value in plain.items()}
        texts |= {f"note/{number}": note for number, note in enumerate(run.notes, 1)}
        writer = SummaryWriter(str(place))
        try:
            for one in run.measurements:
                writer.add_scalar(one.name, one.value, one.step, walltime=run.began_s)
            for part in hparams(values, finite):
                writer.file_writer.add_summary(part)
            for name, value in finite.items():
                writer.add_scalar(name, value, 0)  # what the HParams page shows
            for name, text in texts.items():  # as a block of code in Markdown, which nothing in it leaves
                writer.add_text(name, "\n".join(f"    {line}" for line in text.splitlines()), 0)
        finally:
            writer.close()


def _write_to_store(runs: Iterable[ExportedRun], folder: Path) -> None:
    """Write runs into an MLflow store in a SQLite file; a run that was exported before is replaced.

    Trials are nested runs.
    """
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NAME, MLFLOW_RUN_NOTE

    client = MlflowClient(tracking_uri=f"sqlite:///{folder.absolute() / 'mlflow.db'}")

    def found(experiment: str, run_id: str | None) -> list[str]:
        condition = f"tags.`{_OUR_ID}` = '{run_id}'"
        return [] if run_id is None else [str(run.info.run_id) for run in client.search_runs([experiment], condition)]

    for run in runs:
        record = run.record
        known = client.get_experiment_by_name(record.experiment)
        artifacts = (folder.absolute() / "artifacts").as_uri()
        experiment = str(known.experiment_id if known else client.create_experiment(record.experiment, artifacts))
        for old in found(experiment, record.id):
            client.delete_run(old)
        tags = {_OUR_ID: record.id, "kind": record.kind, MLFLOW_RUN_NAME: run.title, "tags": ", ".join(run.tags)}
        parents = found(experiment, record.parent_id)
        tags |= {MLFLOW_PARENT_RUN_ID: parents[0]} if parents else {}
        tags |= {MLFLOW_RUN_NOTE: "\n\n".join(run.notes)} if run.notes else {}
        began = round(1000 * run.began_s)
        new_id = client.create_run(experiment, start_time=began, run_name=run.title).info.run_id
        metrics = [Metric(mlflow_name(one.name), one.value, began, one.step) for one in run.measurements]
        parameters = [
            Param(mlflow_name(path), str(value)[:_LONGEST_PARAMETER]) for path, value in run.parameters.items()
        ]
        for start in range(0, len(metrics), _ROWS_AT_ONCE):
            client.log_batch(new_id, metrics=metrics[start : start + _ROWS_AT_ONCE])
        for start in range(0, len(parameters), _PARAMETERS_AT_ONCE):
            client.log_batch(new_id, params=parameters[start : start + _PARAMETERS_AT_ONCE])
        client.log_batch(new_id, tags=[RunTag(key, value) for key, value in tags.items()])
        ended = None if record.finished_at is None else round(1000 * record.finished_at.timestamp())
        client.set_terminated(new_id, _STATUS.get(str(record.state), "RUNNING"), ended)


def _write_offline(runs: Iterable[ExportedRun], folder: Path) -> None:
    """Write offline runs of Weights & Biases under the same ids, so that a second sync makes no duplicates.

    Nothing is sent before somebody runs `wandb sync`.
    """
    import wandb

    settings = wandb.Settings(
        mode="offline", silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True,
        x_disable_meta=True, x_disable_machine_info=True,
    )  # fmt: skip
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    for run in runs:
        made = wandb.init(
            project=run.record.experiment[:128] or "orchestrator",
            id=run.record.id,
            name=run.title[:128],
            group=run.record.parent_id,
            job_type=run.record.kind,
            tags=[tag[:64] for tag in run.tags if tag],
            notes="\n\n".join(run.notes) or None,
            config=dict(run.parameters),
            dir=str(folder),
            settings=settings,
        )
        steps: dict[int, dict[str, float]] = defaultdict(dict)
        for one in run.measurements:
            steps[one.step][one.name] = one.value
        for step, values in steps.items():
            made.log(values, step=step)
        for name, value in run.result.items():
            made.summary[name.replace(".", "/")] = value
        made.finish(exit_code=0 if run.record.state == "COMPLETED" else 1)
    wandb.teardown()  # ends its own process, which writes the files; until then the last records may be missing


@dataclass(frozen=True)
class Tracker:
    library: str
    package: str
    """Package that has it."""
    write: Callable[[Iterable[ExportedRun], Path], None]
    look: str
    """Command that shows what was written; FOLDER stands for where."""


def mlflow_name(name: str) -> str:
    """Name that MLflow takes: letters, digits, `_`, `-`, `.`, `/` and blanks, no path; other signs by their codes.

    >>> mlflow_name("validation/f1_C++"), mlflow_name("validation/f1_a//b"), mlflow_name("train/loss")
    ('validation/f1_C_2B_2B', 'validation_2Ff1_a_2F_2Fb', 'train/loss')
    """

    def code(sign: re.Match[str]) -> str:
        return f"_{ord(sign[0]):02X}"

    plain = re.sub(r"[^/\w.\- ]", code, name)
    if posixpath.normpath(plain) != plain or plain.startswith(("/", ".")):
        plain = re.sub(r"[/.]", code, plain)
    digest = hashlib.sha256(plain.encode()).hexdigest()[:8]
    return plain if len(plain) <= _LONGEST_NAME else f"{plain[: _LONGEST_NAME - 9]}_{digest}"


TRACKERS = {
    "tensorboard": Tracker("tensorboardX", "tensorboardX", _write_events, "tensorboard --logdir FOLDER"),
    "mlflow": Tracker(
        "mlflow", "mlflow-skinny", _write_to_store, "mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db"
    ),
    "wandb": Tracker("wandb", "wandb", _write_offline, "wandb sync --sync-all FOLDER/wandb"),
}


def write_runs(tracker: str, runs: Iterable[ExportedRun], folder: Path) -> None:
    """Write runs into a folder, which is made; parents come before their trials.

    Raises: InputError where the tracker's library is not installed.
    """
    chosen = TRACKERS[tracker]
    if find_spec(chosen.library) is None:
        raise InputError(f"writing for {tracker} needs its own library; run: pip install {chosen.package}")
    folder.mkdir(parents=True, exist_ok=True)
    chosen.write(runs, folder)
