"""`Registry`: the one door to the record, for the driver, the command line and notebooks."""

from types import TracebackType
from typing import Self

from orchestrator.registry.database import Database
from orchestrator.registry.facts import FactWriting
from orchestrator.registry.frames import FrameReading
from orchestrator.registry.leaderboard import LeaderboardReading
from orchestrator.registry.lifecycle import LifecycleWriting
from orchestrator.registry.reading import RecordReading
from orchestrator.registry.trials import TrialWriting


class Registry(LifecycleWriting, TrialWriting, FactWriting, RecordReading, FrameReading, LeaderboardReading):
    """The SQL record behind a path, a URL, or `file:PATH` of a private file that holds the URL.

    Opened on first use, when an empty database gets its tables. Writing is for the driver; all of it can be repeated
    without changing more. Raises: RegistryError from every method where the database cannot be opened, read or written.

    Args:
        location: a .sqlite file's path, `sqlite:///PATH`, `postgresql://…`, or `file:PATH`.
        lost_after_s: how long a running run may be silent before it reads as LOST.
    """

    def __init__(self, location: str, *, lost_after_s: float = 60.0) -> None:
        self._database = Database(location)
        self._lost_after_s = lost_after_s

    def upgrade(self) -> str:
        """Bring the tables to the newest revision, one process at a time; returns that revision."""
        return self._database.upgrade()

    def current_revision(self) -> str | None:
        """The revision the tables are at; None where there are none yet."""
        return self._database.current_revision()

    def close(self) -> None:
        """Give every connection back; the next use opens anew."""
        self._database.close()

    def __repr__(self) -> str:
        return f"Registry({str(self._database)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
