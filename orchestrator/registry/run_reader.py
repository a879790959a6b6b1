"""Base class of what reads runs: their states as of now, since one that is silent for long reads as LOST."""

from sqlalchemy import ColumnElement

from orchestrator.registry.database import Database
from orchestrator.registry.run_records import state_as_read
from orchestrator.run_states import RunState


class RunReader:
    """Reads runs of a database.

    Args:
        lost_after_s: as `Registry` takes it.
    """

    def __init__(self, database: Database, lost_after_s: float) -> None:
        self._database = database
        self._lost_after_s = lost_after_s

    def _state(self) -> ColumnElement[RunState]:
        """State of a run as SQL, as it reads now."""
        return state_as_read(self._lost_after_s)
