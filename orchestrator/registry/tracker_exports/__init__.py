"""Runs written for other trackers (TensorBoard, MLflow, W&B), each by that tracker's own library.

A tracker is one function, `write_run(run, folder)`, and `close()` where its files are whole only then. To add one: a
module here and a line in `TRACKERS`.
"""

import hashlib
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.registry.tracker_exports.exported_run import ExportedRun


@dataclass(frozen=True)
class Tracker:
    """A tracker for which runs are written."""

    library: str
    """Module that writes its format."""
    package: str
    """Package to install where that module is not there."""
    module: str
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


_HERE = "orchestrator.registry.tracker_exports"
TRACKERS = {
    "tensorboard": Tracker("tensorboardX", "tensorboardX", f"{_HERE}.to_tensorboard", "tensorboard --logdir FOLDER"),
    "mlflow": Tracker(
        "mlflow",
        "mlflow-skinny",
        f"{_HERE}.to_mlflow",
        "mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db",
        mlflow_name,
    ),
    "wandb": Tracker("wandb", "wandb", f"{_HERE}.to_wandb", "wandb sync --sync-all FOLDER/wandb"),
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
    writer = import_module(chosen.module)
    folder.mkdir(parents=True, exist_ok=True)
    for run in runs:
        on_run(run)
        writer.write_run(run.renamed(chosen.name), folder)
    if hasattr(writer, "close"):
        writer.close()
    names = {name for run in runs for name in (*run.parameters, *(one.name for one in run.measurements))}
    return {name: chosen.name(name) for name in sorted(names) if chosen.name(name) != name}
