"""Request that an attempt ends: a small file in the run's folder, where the attempt's driver looks."""

from contextlib import suppress
from dataclasses import asdict, dataclass

from orchestrator.storage import delete, exists, join, read_json, write_json

STOP_FILE = "stop.json"


@dataclass(frozen=True)
class StopRequest:
    """Somebody's wish that an attempt ends."""

    attempt: int
    force: bool = False
    """Whether it leaves at once, without saving anything."""

    def save(self, run_folder: str) -> None:
        """Write the request into the folder of the run, in place of an earlier one."""
        write_json(join(run_folder, STOP_FILE), asdict(self))

    @classmethod
    def load(cls, run_folder: str) -> "StopRequest | None":
        """The request in a run's folder; None where there is none that can be read."""
        path = join(run_folder, STOP_FILE)
        try:
            return cls(**read_json(path)) if exists(path) else None
        except (OSError, ValueError, TypeError):
            return None

    @classmethod
    def withdraw(cls, run_folder: str, attempt: int) -> None:
        """Delete a request that is for an attempt that has yet to begin: an earlier try at it has failed."""
        request = cls.load(run_folder)
        if request is not None and request.attempt == attempt:
            with suppress(FileNotFoundError):
                delete(join(run_folder, STOP_FILE))
