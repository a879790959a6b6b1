"""Runs written for other trackers (TensorBoard, MLflow, W&B), each by that tracker's own library.

A tracker is one function, `write_run(run, folder)`, and `close()` where its files are whole only then. To add one: a
module here and a line in `TRACKERS`.
"""

from collections.abc import Callable, Sequence
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


_HERE = "orchestrator.registry.tracker_exports"
TRACKERS = {
    "tensorboard": Tracker("tensorboardX", "tensorboardX", f"{_HERE}.to_tensorboard", "tensorboard --logdir FOLDER"),
    "mlflow": Tracker(
        "mlflow", "mlflow-skinny", f"{_HERE}.to_mlflow", "mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db"
    ),
    "wandb": Tracker("wandb", "wandb", f"{_HERE}.to_wandb", "wandb sync --sync-all FOLDER/wandb"),
}


def write_runs(
    tracker: str, runs: Sequence[ExportedRun], folder: Path, on_run: Callable[[ExportedRun], None] = lambda run: None
) -> None:
    """Write runs into a folder, which is made; parents come before their trials.

    Raises: InputError where the tracker's library is not installed.
    """
    chosen = TRACKERS[tracker]
    if find_spec(chosen.library) is None:
        raise InputError(f"writing for {tracker} needs its own library; run: pip install {chosen.package}")
    writer = import_module(chosen.module)
    folder.mkdir(parents=True, exist_ok=True)
    for run in runs:
        on_run(run)
        writer.write_run(run, folder)
    if hasattr(writer, "close"):
        writer.close()
