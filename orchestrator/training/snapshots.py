"""Snapshots of a run: its model at chosen steps as Hugging Face folders, which stay, and a manifest that names them.

The manifest file is replaced after a snapshot is complete, so that it never names half of one; no snapshot is found by
listing folders.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.base.errors import RunStoppedError
from orchestrator.storage import delete, join, names_in, write_folder
from orchestrator.storage.attempts import FencedList

MANIFEST = "snapshots.json"
FOLDER = "snapshots"
STATE_FOLDER = "training_state"
"""Name of the folder in a snapshot for the training state after its step, where the run keeps it."""


def snapshot_folders(run_folder: str) -> dict[int, str]:
    """Return the folders of a run's complete snapshots by step, the earliest first; none where the run keeps none.

    Raises: CheckpointError where the manifest file is damaged.
    """
    entries = Snapshots(run_folder)._manifest.read()
    folders = {int(entry["step"]): join(run_folder, FOLDER, str(entry["name"])) for entry in entries}
    return dict(sorted(folders.items()))


@dataclass(frozen=True)
class Snapshots:
    """Snapshots of one run, saved by one attempt, which a newer attempt's claim stops."""

    run_folder: str
    attempt: int = 1

    def claim(self, first_step: int) -> None:
        """Take the run's snapshots over for this attempt, which trains from a step on.

        The snapshots up to that step stay. Later ones are deleted, as this attempt makes them anew; so are folders
        that a killed process left behind.

        Raises: RunStoppedError where a newer attempt has claimed them; CheckpointError where the manifest is damaged.
        """
        _, kept = self._manifest.replace(lambda known: [entry for entry in known if entry["step"] <= first_step])
        known = {entry["name"] for entry in kept}
        for name in names_in(join(self.run_folder, FOLDER)):
            if name not in known:
                delete(join(self.run_folder, FOLDER, name))

    def save(self, step: int, write_model: Callable[[Path], None]) -> None:
        """Write a snapshot by `write_model`, which gets a folder, then the manifest file.

        Raises: RunStoppedError where a newer attempt has claimed the run's snapshots; nothing is left of this one.
        """
        self._manifest.read_own()
        new = {"step": step, "name": f"step-{step:08d}-attempt-{self.attempt}"}
        path = join(self.run_folder, FOLDER, str(new["name"]))
        try:
            with write_folder(path) as folder:
                write_model(folder)
        except OSError:
            self._manifest.read_own()  # a newer attempt's claim deletes what it finds half written
            raise
        try:
            self._manifest.replace(lambda known: [*(entry for entry in known if entry["step"] != step), new])
        except RunStoppedError:
            delete(path)
            raise

    @property
    def _manifest(self) -> FencedList:
        remedy = "start a new run with the same snapshot_steps"
        return FencedList(join(self.run_folder, MANIFEST), "snapshots", ("step", "name"), self.attempt, remedy)
