"""Staleness: a child whose parent has changed, or was superseded by a newer one, since the child was made.

a file           is gone, has another size than was read, or was written since, unless it has the digest that was read
a model          has a newer version under each of its names
data, tokenizer  the run that made them was made again since, with another result
"""

import hashlib
import socket
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.registry.lineage.lineage_edges import LineageEdge, LineageNode
from orchestrator.registry.tables import DatasetRow, ModelRow, RunDatasetRow, RunRow
from orchestrator.run_states import RunState

_MAKING_KINDS = ("corpus", "tokenizer")
"""Kinds of runs whose result is data; other runs only use data."""


def stale_nodes(session: Session, edges: Sequence[LineageEdge]) -> dict[str, str]:
    """Return why nodes are stale, by digest: for each child of a parent that has changed, and all made of it since."""
    children: defaultdict[str, list[LineageNode]] = defaultdict(list)
    for edge in edges:
        children[edge.parent.digest].append(edge.child)
    stale: dict[str, str] = {}
    frontier = []
    for child, reason in _changed(session, edges):
        if child.digest not in stale:
            stale[child.digest] = reason
            frontier.append(child)
    while frontier:
        node = frontier.pop()
        for child in children[node.digest]:
            if child.digest not in stale:
                stale[child.digest] = f"made of {node.name}, which is stale"
                frontier.append(child)
    return stale


def _changed(session: Session, edges: Sequence[LineageEdge]) -> Iterator[tuple[LineageNode, str]]:
    """Yield each child whose own parent has changed or was superseded, with how."""
    superseded: dict[str, str | None] = {}
    for edge in edges:
        parent = edge.parent
        if parent.kind != "file" and parent.digest not in superseded:
            superseded[parent.digest] = _superseded(session, parent)
        reason = _file_reason(session, edge) if parent.kind == "file" else superseded[parent.digest]
        if reason:
            yield edge.child, reason


def _file_reason(session: Session, edge: LineageEdge) -> str | None:
    """Tell how a local file has changed since something was made of it; nothing of a file elsewhere."""
    path = Path(edge.parent.name)
    run = session.get(RunRow, edge.run_id) if edge.run_id else None
    is_of_this_machine = run is None or run.host in (None, socket.gethostname())
    if "://" in edge.parent.name or not path.is_absolute() or not is_of_this_machine:
        return None
    try:
        status = path.stat()
    except FileNotFoundError:
        return f"{path.name} is gone"
    except OSError:
        return None
    data = session.get(DatasetRow, edge.child.digest)
    files = {str(file["path"]): file for file in (data.files if data else ())}
    read = files.get(edge.parent.name, files.get(path.name, {}))
    if read and read["num_bytes"] != status.st_size:
        return f"{path.name} has {status.st_size:,} bytes now, {read['num_bytes']:,} were read"
    if path.is_file() and edge.recorded_at is not None:
        written_at = written_again(path, read.get("digest"), edge.recorded_at)
        return None if written_at is None else f"{path.name} was written again, {written_at:%Y-%m-%d %H:%M}"
    return None


def written_again(path: Path, digest: str | None, since: datetime) -> datetime | None:
    """Time at which a file was written, where that is after `since` and it has not the content of before.

    Args:
        digest: SHA-256 of the content of before; None where it is not known: then the time alone decides.

    Raises: OSError where the file's time cannot be read.
    """
    written_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    if written_at <= since:
        return None
    with suppress(OSError):
        if digest is not None and _digest(path) == digest:
            return None
    return written_at


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _superseded(session: Session, node: LineageNode) -> str | None:
    if node.kind == "model":
        return _newer_model(session, node.digest)
    return _newer_data(session, node.digest) if node.kind in _MAKING_KINDS else None


def _newer_model(session: Session, digest: str) -> str | None:
    """Name the newer version of weights; None where they are the newest of some name, or have none."""
    newer = []
    for name, version in session.execute(select(ModelRow.name, ModelRow.version).where(ModelRow.digest == digest)):
        later = select(ModelRow.version).where(ModelRow.name == name, ModelRow.version > version)
        newest = session.scalar(later.order_by(ModelRow.version.desc()).limit(1))
        if newest is None:
            return None
        newer.append(f"{name}@{newest}")
    return f"{newer[0]} is newer" if newer else None


def _newer_data(session: Session, digest: str) -> str | None:
    """Name the later run of the same name and kind whose result is other data; None where there is none."""
    made = (
        select(RunRow)
        .join(RunDatasetRow, RunDatasetRow.run_id == RunRow.key)
        .where(RunRow.kind.in_(_MAKING_KINDS), RunRow.state == RunState.COMPLETED)
    )
    makers = session.scalars(made.where(RunDatasetRow.fingerprint == digest).order_by(RunRow.created_at.desc())).all()
    for maker in makers[:1]:
        again = made.where(
            RunRow.name == maker.name,
            RunRow.kind == maker.kind,
            RunRow.created_at > maker.created_at,
            RunDatasetRow.fingerprint != digest,
        )
        newer = session.scalar(again.order_by(RunRow.created_at.desc()).limit(1))
        if newer is not None:
            return f"run {newer.id} made {newer.name} again, otherwise"
    return None
