"""Runs written for other trackers (TensorBoard, MLflow, W&B), each by that tracker's own library.

A tracker is one function, `write(run, folder)`, and a line in `TRACKERS`. Its library is loaded when it writes.
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
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from orchestrator.errors import InputError
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry


@dataclass(frozen=True)
class Measurement:
    """One value of a measurement; NaN where it was no number."""

    name: str
    """Name with its split: `train/loss`."""
    step: int
    value: float


@dataclass(frozen=True)
class ExportedRun:
    """A run or a trial."""

    record: RunRecord
    parameters: Mapping[str, Any]
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

    def renamed(self, new_name: Callable[[str], str]) -> Self:
        """The same run with other names of its parameters and measurements."""
        return replace(
            self,
            parameters={new_name(path): value for path, value in self.parameters.items()},
            measurements=[replace(one, name=new_name(one.name)) for one in self.measurements],
        )


def load_runs(registry: Registry, run_ids: Iterable[str], *, where: str = "") -> list[ExportedRun]:
    """Runs by the beginnings of their ids, each with its trials; a query's runs where no ids are given.

    Raises: NotFoundError; InputError for a query with an error.
    """
    wanted: dict[str, None] = {}
    for run_id in [registry.run(prefix).id for prefix in run_ids] or registry.run_table(where).values("id"):
        wanted[run_id] = None
        wanted |= dict.fromkeys(str(row["id"]) for row in registry.trials.table(run_id).records)
    records = [registry.run(run_id) for run_id in wanted]
    refusals = registry.test_refusals(wanted)
    runs_first = sorted(records, key=lambda record: record.parent_id is not None)
    return [_load(registry, record, refusals.get(record.id)) for record in runs_first]


def _load(registry: Registry, record: RunRecord, refusal: str | None) -> ExportedRun:
    """Load what is exported of a run; that its test score is refused, and why, is a note."""
    refused = [] if refusal is None else [f"The test score is refused: {refusal}."]
    history = registry.metrics.history(record.id).records
    points = [
        Measurement(f"{row['split']}/{row['name']}", row["step"], row["value"])
        for row in sorted(history, key=lambda row: row["step"])
    ]
    return ExportedRun(
        record,
        registry.parameters(record.id),
        registry.tags(record.id),
        [*refused, *(note.text for note in registry.annotations.notes(record.id))],
        points,
        registry.metrics.latest(record.id),
    )


def _write_events(run: ExportedRun, folder: Path) -> None:
    """Write an event file of TensorBoard anew: scalars by step, parameters for its HParams page, texts.

    A run has a folder of its own, called by its id, and a trial one in that of its sweep.
    """
    from tensorboardX import SummaryWriter
    from tensorboardX.summary import hparams

    logging.getLogger("tensorboardX.x2num").setLevel(logging.ERROR)  # it warns of every NaN, which a history may hold
    place = folder / (run.record.parent_id or "") / run.record.id
    for old in place.glob("events.out.tfevents.*"):
        old.unlink()
    writer = SummaryWriter(str(place))
    begun = (run.record.started_at or run.record.created_at).timestamp()  # a history here has steps, and no times
    try:
        for one in run.measurements:
            writer.add_scalar(one.name, one.value, one.step, walltime=begun)
        values = {path: value for path, value in run.parameters.items() if isinstance(value, bool | int | float | str)}
        finite = {name: value for name, value in run.result.items() if math.isfinite(value)}
        for part in hparams(values, finite):
            writer.file_writer.add_summary(part)
        for name, value in finite.items():
            writer.add_scalar(name, value, 0)  # what the HParams page shows
        about = {"id": run.record.id, "name": run.title, "kind": run.record.kind, "state": str(run.record.state)}
        about |= {"tags": ", ".join(run.tags)}
        writer.add_text("run", _as_code(json.dumps(about, indent=2, ensure_ascii=False)), 0)
        writer.add_text("spec", _as_code(json.dumps(dict(run.record.spec), indent=2, ensure_ascii=False)), 0)
        for number, note in enumerate(run.notes, 1):
            writer.add_text(f"note/{number}", _as_code(note), 0)
    finally:
        writer.close()


def _as_code(text: str) -> str:
    """Text as a block of code in Markdown, which nothing in it leaves."""
    return "\n".join(f"    {line}" for line in text.splitlines())


_OUR_ID = "orchestrator.run_id"
_ROWS_AT_ONCE = 500
_LONGEST_PARAMETER = 6_000
"""MLflow refuses longer values."""
_STATUS = {"COMPLETED": "FINISHED", "FAILED": "FAILED", "STOPPED": "KILLED", "PRUNED": "KILLED"}


def _write_to_store(run: ExportedRun, folder: Path) -> None:
    """Write a run into an MLflow store in a SQLite file; one that is there already, by its id here, is replaced.

    Trials are nested runs.
    """
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NAME, MLFLOW_RUN_NOTE

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


def _experiment(client: Any, name: str, folder: Path) -> str:
    known = client.get_experiment_by_name(name)
    if known is not None:
        return str(known.experiment_id)
    return str(client.create_experiment(name, artifact_location=(folder.absolute() / "artifacts").as_uri()))


def _found(client: Any, experiment: str, run_id: str | None) -> list[str]:
    if run_id is None:
        return []
    return [str(run.info.run_id) for run in client.search_runs([experiment], f"tags.`{_OUR_ID}` = '{run_id}'")]


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)


def _write_offline(run: ExportedRun, folder: Path) -> None:
    """Write an offline run of Weights & Biases, by its id here, so that syncing twice makes no second one.

    Nothing is sent before somebody runs `wandb sync`.
    """
    import wandb

    settings = wandb.Settings(
        mode="offline", silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True,
        x_disable_meta=True, x_disable_machine_info=True,
    )  # fmt: skip
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
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
    for step, values in sorted(steps.items()):
        made.log(values, step=step)
    for name, value in run.result.items():
        made.summary[name.replace(".", "/")] = value
    made.finish(exit_code=0 if run.record.state == "COMPLETED" else 1)


@dataclass(frozen=True)
class Tracker:
    """A tracker for which runs are written."""

    library: str
    """Module that writes its format."""
    package: str
    """Package to install where that module is not there."""
    write: Callable[[ExportedRun, Path], None]
    look: str
    """Command that shows what was written; FOLDER stands for where."""
    name: Callable[[str], str] = str
    """Makes the name of a parameter or measurement one that the tracker takes."""


_LONGEST_NAME = 250


def mlflow_name(name: str) -> str:
    """Name that MLflow takes: letters, digits, `_`, `-`, `.`, `/` and blanks, no path; other signs by their codes.

    >>> mlflow_name("validation/f1_C++"), mlflow_name("validation/f1_a//b"), mlflow_name("train/loss")
    ('validation/f1_C_2B_2B', 'validation_2Ff1_a_2F_2Fb', 'train/loss')
    """
    plain = re.sub(r"[^/\w.\- ]", _code, name)
    if posixpath.normpath(plain) != plain or plain.startswith(("/", ".")):
        plain = re.sub(r"[/.]", _code, plain)
    if len(plain) <= _LONGEST_NAME:
        return plain
    digest = hashlib.sha256(plain.encode()).hexdigest()[:8]
    return f"{plain[: _LONGEST_NAME - 9]}_{digest}"


def _code(sign: re.Match[str]) -> str:
    return f"_{ord(sign[0]):02X}"


TRACKERS = {
    "tensorboard": Tracker("tensorboardX", "tensorboardX", _write_events, "tensorboard --logdir FOLDER"),
    "mlflow": Tracker(
        "mlflow",
        "mlflow-skinny",
        _write_to_store,
        "mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db",
        mlflow_name,
    ),
    "wandb": Tracker("wandb", "wandb", _write_offline, "wandb sync --sync-all FOLDER/wandb"),
}


def write_runs(
    tracker: str, runs: Sequence[ExportedRun], folder: Path, on_run: Callable[[ExportedRun], None] = lambda run: None
) -> Mapping[str, str]:
    """Write runs into a folder, which is made; parents come before their trials.

    Returns the names that the tracker does not take, each with the one that was written in its place.

    Raises: InputError where the tracker's library is not installed.
    """
    chosen = TRACKERS[tracker]
    if find_spec(chosen.library) is None:
        raise InputError(f"writing for {tracker} needs its own library; run: pip install {chosen.package}")
    folder.mkdir(parents=True, exist_ok=True)
    for run in runs:
        on_run(run)
        chosen.write(run.renamed(chosen.name), folder)
    if chosen.write is _write_offline:
        import wandb

        wandb.teardown()  # ends its own process, which writes the files; until then the last records may be missing
    names = {name for run in runs for name in (*run.parameters, *(one.name for one in run.measurements))}
    return {name: chosen.name(name) for name in sorted(names) if chosen.name(name) != name}
