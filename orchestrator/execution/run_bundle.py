"""Bundle of runs: one file with what a registry has of some runs, and their logs, to be carried to another machine.

It is a registry of these runs alone, compressed, with two tables more: `bundle_logs`, the logs of the runs and of their
workers, and `bundle_contents`, which runs there are and how much of each. Weights and checkpoints are not in it: they
stay on the storage.
"""

import gzip
import json
import shutil
import socket
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.errors import ClusterError
from orchestrator.execution.run_log import LOG_FILE
from orchestrator.registry.keeping.registry_copy import bring_up_to_date, copy_registry, keep_runs
from orchestrator.registry.registry import Registry
from orchestrator.settings import Settings
from orchestrator.storage import join, read_bytes
from orchestrator.training.worker_log import FOLDER, worker_logs

_TABLES = """
CREATE TABLE bundle_logs (run_id TEXT, name TEXT, data BLOB, PRIMARY KEY (run_id, name));
CREATE TABLE bundle_contents (contents TEXT);
"""
_SETTLED = timedelta(seconds=60)
"""Time after its end by which a run's log has its last line."""


@dataclass(frozen=True)
class Wanted:
    """The runs that are asked for."""

    run_ids: Sequence[str] = ()
    """Ids or beginnings of them; all runs when there are none."""
    since: datetime | None = None
    """Runs that neither began nor went on since then are left out."""
    known: Mapping[str, str] = field(default_factory=dict)
    """Digests of runs that came before: those that are the same are left out."""


@dataclass(frozen=True)
class BundledRun:
    """A run in a bundle, and how much there is of it."""

    id: str
    name: str
    kind: str
    state: str
    num_trials: int
    num_points: int
    """Measurements in the histories of the run and its trials."""
    log_bytes: int | None
    """Size of its logs; None where they could not be read."""
    digest: str | None
    """Digest of what is recorded; None for a run that goes on, or has just ended."""


@dataclass(frozen=True)
class Contents:
    """List of what a bundle holds."""

    place: str
    """Name of the place that it comes from."""
    runs: tuple[BundledRun, ...]
    num_unchanged: int
    """Runs that were asked for, and that whoever asks has already."""
    num_bytes: int = 0
    """Size of the bundle."""


@dataclass(frozen=True)
class Bundle:
    """Opened bundle."""

    contents: Contents
    registry: Registry
    file: Path

    def logs(self, run_id: str) -> dict[str, bytes]:
        """Logs of a run by their paths in its folder."""
        with closing(sqlite3.connect(self.file)) as connection:
            return dict(connection.execute("SELECT name, data FROM bundle_logs WHERE run_id = ?", (run_id,)))


def write_bundle(path: Path, settings: Settings, wanted: Wanted, *, place: str | None = None) -> Contents:
    """Write a bundle of runs of the registry that the settings name; runs at work go on meanwhile.

    Args:
        place: name of this place; the host's when left out.

    Raises: NotFoundError; RegistryError.
    """
    with TemporaryDirectory(prefix="orchestrator-bundle-") as name:
        copy = Path(name) / "registry.sqlite"
        copy_registry(settings.registry, copy)
        with Registry(str(copy)) as registry:
            digests = {run_id: _settled_digest(registry, run_id) for run_id in _asked(registry, wanted)}
            sent = {
                run_id: digest
                for run_id, digest in digests.items()
                if digest is None or wanted.known.get(run_id) != digest
            }
            logs = {run_id: _logs(registry, run_id, settings) for run_id in sent}
            runs = tuple(_bundled(registry, run_id, digest, logs[run_id]) for run_id, digest in sent.items())
        keep_runs(copy, sent)
        contents = Contents(place or socket.gethostname(), runs, len(digests) - len(sent))
        with closing(sqlite3.connect(copy)) as connection, connection:
            connection.executescript(_TABLES)
            connection.execute("INSERT INTO bundle_contents VALUES (?)", (json.dumps(asdict(contents)),))
            rows = [(run_id, log, data) for run_id, files in logs.items() for log, data in files.items()]
            connection.executemany("INSERT INTO bundle_logs VALUES (?, ?, ?)", rows)
        with copy.open("rb") as source, gzip.open(path, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target)
    return replace(contents, num_bytes=path.stat().st_size)


def read_contents(data: bytes) -> Contents:
    """Read contents that were written as JSON."""
    values = json.loads(data)
    return Contents(**{**values, "runs": tuple(BundledRun(**run) for run in values["runs"])})


@contextmanager
def open_bundle(path: Path) -> Iterator[Bundle]:
    """Open a bundle; its registry is brought to this version's tables.

    Raises: ClusterError for a bundle that did not come whole; RegistryError for one of a newer version.
    """
    with TemporaryDirectory(prefix="orchestrator-bundle-") as name:
        file = Path(name) / "registry.sqlite"
        try:
            with gzip.open(path) as source, file.open("wb") as target:
                shutil.copyfileobj(source, target)  # which compares all of it with its checksum
            with closing(sqlite3.connect(file)) as connection:
                (text,) = connection.execute("SELECT contents FROM bundle_contents").fetchone()
        except (gzip.BadGzipFile, zlib.error, EOFError, sqlite3.Error) as error:
            raise ClusterError(
                "what came from the cluster is cut off or damaged, and nothing was changed here; give the command again"
            ) from error
        contents = replace(read_contents(text), num_bytes=path.stat().st_size)
        bring_up_to_date(file, f"of {contents.place}")
        with Registry(str(file), read_only=True) as registry:
            yield Bundle(contents, registry, file)


def _asked(registry: Registry, wanted: Wanted) -> list[str]:
    """Ids of the runs that are asked for: a trial's sweep, and a pipeline with its stages."""
    begun = registry.transfers.begun_since(wanted.since)
    if not wanted.run_ids:
        return begun
    asked = []
    for called in wanted.run_ids:
        record = registry.find_run(called)
        run_id = record.parent_id or record.id
        asked += [run_id, *(stage.id for stage in reversed(registry.stages(run_id)))]
    return [run_id for run_id in dict.fromkeys(asked) if run_id in set(begun)]


def _settled_digest(registry: Registry, run_id: str) -> str | None:
    """Digest of a run that has ended for good, its log with it; None of another."""
    record = registry.run(run_id)
    if not record.state.is_final or record.finished_at is None or datetime.now(UTC) - record.finished_at < _SETTLED:
        return None
    return registry.transfers.digest(run_id)


def _bundled(registry: Registry, run_id: str, digest: str | None, logs: Mapping[str, bytes]) -> BundledRun:
    """Tell what there is of a run."""
    record = registry.run(run_id)
    return BundledRun(
        id=run_id,
        name=record.name,
        kind=record.kind,
        state=str(record.state),
        num_trials=len(registry.trials.states(run_id)),
        num_points=registry.transfers.count_points(run_id),
        log_bytes=sum(map(len, logs.values())) if logs else None,
        digest=digest,
    )


def _logs(registry: Registry, run_id: str, settings: Settings) -> dict[str, bytes]:
    """Logs of a run by their paths in its folder; none where that is not reached from here."""
    folder = registry.run(run_id).folder(settings.storage)
    logs = {}
    with suppress(OSError):
        logs[LOG_FILE] = read_bytes(join(folder, LOG_FILE))
    with suppress(OSError):
        for log in worker_logs(folder):
            logs[f"{FOLDER}/{log.path.rpartition('/')[2]}"] = read_bytes(log.path)
    return logs
