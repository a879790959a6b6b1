"""Snapshots of a run: its model at chosen steps as Hugging Face folders, and one manifest file that names them.

A checkpoint serves to go on with a run, and the next ones take its place; a snapshot serves to be used, and stays. The
manifest file is replaced after a snapshot is complete, so that it never names half of one; no snapshot is found by
listing folders.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert_core.errors import CheckpointError
from orchestrator.errors import RunStoppedError
from orchestrator.storage import delete, exists, join, names_in, read_json, write_folder, write_json
from orchestrator.training.attempts import refuse_if_superseded

MANIFEST = "snapshots.json"
FOLDER = "snapshots"


def snapshot_folders(run_folder: str) -> dict[int, str]:
    """Return the folders of a run's complete snapshots by step, the earliest first; none where the run keeps none.

    Raises: CheckpointError where the manifest file is damaged.
    """
    folders = {
        entry["step"]: join(run_folder, FOLDER, entry["name"]) for entry in _read_manifest(run_folder)["snapshots"]
    }
    return dict(sorted(folders.items()))


@dataclass(frozen=True)
class Snapshots:
    """Snapshots of one run, saved by one attempt.

    Args:
        run_folder: folder of the run on the storage.
        attempt: number of the attempt; a newer attempt's claim stops this one.
    """

    run_folder: str
    attempt: int = 1

    def claim(self, first_step: int) -> None:
        """Take the run's snapshots over for this attempt, which trains from a step on.

        The snapshots up to that step stay. Later ones are deleted, as this attempt makes them anew; so are folders
        that a killed process left behind.

        Raises: RunStoppedError where a newer attempt has claimed them; CheckpointError where the manifest is damaged.
        """
        kept = [entry for entry in self._refuse_if_superseded() if entry["step"] <= first_step]
        self._write_manifest(kept)
        known = {entry["name"] for entry in kept}
        for name in names_in(join(self.run_folder, FOLDER)):
            if name not in known:
                delete(join(self.run_folder, FOLDER, name))

    def save(self, step: int, write_model: Callable[[Path], None]) -> None:
        """Write a snapshot, then the manifest file.

        Args:
            write_model: writes model and tokenizer into the folder it is given.

        Raises: RunStoppedError where a newer attempt has claimed the run's snapshots; nothing is left of this one.
        """
        self._refuse_if_superseded()
        name = f"step-{step:08d}-attempt-{self.attempt}"
        try:
            with write_folder(join(self.run_folder, FOLDER, name)) as folder:
                write_model(folder)
        except OSError:
            self._refuse_if_superseded()  # a newer attempt's claim deletes what it finds half written
            raise
        try:
            known = [entry for entry in self._refuse_if_superseded() if entry["step"] != step]
        except RunStoppedError:
            delete(join(self.run_folder, FOLDER, name))
            raise
        self._write_manifest([*known, {"step": step, "name": name}])

    def _write_manifest(self, entries: list[dict[str, Any]]) -> None:
        write_json(join(self.run_folder, MANIFEST), {"attempt": self.attempt, "snapshots": entries})

    def _refuse_if_superseded(self) -> list[dict[str, Any]]:
        """Entries of the manifest file. Raises: RunStoppedError where a newer attempt has written it."""
        manifest = _read_manifest(self.run_folder)
        refuse_if_superseded(manifest["attempt"], self.attempt)
        entries: list[dict[str, Any]] = manifest["snapshots"]
        return entries


def _read_manifest(run_folder: str) -> dict[str, Any]:
    path = join(run_folder, MANIFEST)
    if not exists(path):
        return {"attempt": 0, "snapshots": []}
    try:
        manifest = read_json(path)
        entries = [{"step": int(entry["step"]), "name": str(entry["name"])} for entry in manifest["snapshots"]]
        return {"attempt": int(manifest["attempt"]), "snapshots": entries}
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{path} is cut short or altered; start a new run with the same snapshot_steps") from None
