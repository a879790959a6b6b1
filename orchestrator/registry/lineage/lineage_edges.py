"""Edges of lineage that follow from a run's record: its data and their files, its models, and the names in its spec.

    files ──► corpus, task, tokenizer ──► model ──► model … ──► export

A node is known by a digest: of content for data, tokenizers and models, of the place for a file, a folder that is not
registered, and an export. So the same weights under two names are one node, and a file that changes stays one.
"""

import glob
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.registry.registered_models import named_version
from orchestrator.registry.runs.run_parameters import load_parameters
from orchestrator.registry.tables import DatasetRow, LineageRow, ModelRow, RunDatasetRow, RunRow
from orchestrator.registry.trial_rows import load_kept_trials

_RANDOM = "random"
_MAX_FILES = 1000
"""Files that one run has edges to; of more, the first ones."""
_ROLES = {"init_from": "weights", "run": "weights", "teacher": "teacher", "tokenizer": "tokenizer"}
"""Roles of the models and tokenizers that a spec names, by the field that names them."""
_ROLE_OF_DATA = {"corpus": "text", "task": "examples", "tokenizer": "tokenizer"}


@dataclass(frozen=True)
class LineageNode:
    """A file, data, a tokenizer, a model or an exported folder, known by its digest."""

    digest: str
    kind: str
    """One of file, corpus, task, tokenizer, model, export."""
    name: str
    """Name at the time: a path, a name of data, or `name@version` of a model."""


@dataclass(frozen=True)
class LineageEdge:
    """Edge that says that `child` was made of `parent`. Natural key: both digests and the role."""

    child: LineageNode
    parent: LineageNode
    role: str
    """Part that the parent had in making the child: `text`, `examples`, `tokenizer`, `weights`, `teacher`, `copy`."""
    run_id: str | None = None
    """Run that made the child; None for an export, or where the run is no longer recorded."""
    recorded_at: datetime | None = None
    """Time from which on a change of the parent makes the child stale; now when it is recorded without one."""


def edges_of_run(session: Session, run: RunRow, *, is_here: bool = False) -> list[LineageEdge]:
    """Return the edges to what a completed run has made.

    Args:
        is_here: whether relative paths are meant from the current folder; elsewhere they stay as they were typed.
    """
    linked = select(DatasetRow).join(RunDatasetRow, RunDatasetRow.fingerprint == DatasetRow.fingerprint)
    data = session.scalars(linked.where(RunDatasetRow.run_id == run.id).order_by(DatasetRow.name)).all()
    models = session.scalars(select(ModelRow).where(ModelRow.run_id == run.id).order_by(ModelRow.name)).all()
    tokenizers = {each.tokenizer_digest for each in data if each.tokenizer_digest is not None}
    digest = tokenizers.pop() if len(tokenizers) == 1 else None
    pairs: list[tuple[LineageNode, LineageNode, str]] = []
    for each in data:
        made = _data_node(each)
        role = "examples" if each.kind == "task" else "text"
        pairs += [(made, place_node("file", path), role) for path in _files(each, run.spec, is_here=is_here)]
        if each.kind == "corpus":
            named = _named_parents(session, run, digest)
            pairs += [(made, node, "tokenizer") for node, role in named if role == "tokenizer"]
        pairs += [(_node_of(model), made, _ROLE_OF_DATA.get(each.kind, "text")) for model in models]
    for model in models:
        named = _named_parents(session, run, digest, model.folder)
        pairs += [(_node_of(model), node, role) for node, role in named]
    return [LineageEdge(child, parent, role, run.id, run.created_at) for child, parent, role in dict.fromkeys(pairs)]


def model_node(session: Session, name: str, before: datetime | None = None) -> LineageNode | None:
    """Return the node of a registered model, by its name, `name@version`, `name@alias` or folder; None for no model.

    Args:
        before: time at which the name was said; None for now. A folder is asked for what lies in it now.
    """
    newest = select(ModelRow).order_by(ModelRow.version.desc(), ModelRow.created_at.desc()).limit(1)
    model = session.scalar(named_version(name, before)) or session.scalar(newest.where(ModelRow.folder == name))
    return None if model is None else _node_of(model)


def place_node(kind: str, place: str) -> LineageNode:
    """Return the node of a path or URI that is known by its place alone."""
    return LineageNode(hashlib.sha256(f"{kind} {place}".encode("utf-8", "replace")).hexdigest(), kind, place)


def export_node(target: str, weights: str) -> LineageNode:
    """Return the node of a folder to which weights were exported; other weights in the same place are another node."""
    place = target if "://" in target else str(Path(target).absolute())
    return LineageNode(hashlib.sha256(f"export {place} {weights}".encode()).hexdigest(), "export", place)


def _node_of(model: ModelRow) -> LineageNode:
    return LineageNode(model.digest, "model", f"{model.name}@{model.version}")


def _data_node(data: DatasetRow) -> LineageNode:
    """Node of data; all tokenizers have the same name, so that theirs is their folder."""
    return LineageNode(data.fingerprint, data.kind, data.path if data.kind == "tokenizer" else data.name)


def _deciding_parameters(session: Session, run: RunRow, folder: str | None) -> Mapping[str, Any]:
    """Parameters that say what a model began with: of a sweep, those of the trial that left it, or whose it kept."""
    left_it = select(RunRow.id).where(RunRow.parent_id == run.id, RunRow.model_folder == folder).limit(1)
    trial = (folder and session.scalar(left_it)) or load_kept_trials(session, [run.id]).get(run.id)
    return load_parameters(session, trial or run.id)


def _named_parents(
    session: Session, run: RunRow, tokenizer_digest: str | None, folder: str | None = None
) -> Iterator[tuple[LineageNode, str]]:
    """Yield the models and tokenizers that a run named when it was made, each with its role.

    Models are those that were recorded before, where they were: a name may mean another one in another registry.

    Args:
        tokenizer_digest: digest of the tokenizer that was used; None where it was not recorded.
        folder: that of the model whose parents are asked for; None: those of all that the run made.
    """
    names = {
        (path.rpartition(".")[2], value)
        for path, value in _deciding_parameters(session, run, folder).items()
        if isinstance(value, str) and value != _RANDOM and not path.startswith("space.")
    }
    of_models = select(LineageRow).where(LineageRow.run_id == run.id, LineageRow.role.in_(("weights", "teacher")))
    recorded = {
        row.parent_name: LineageNode(row.parent, row.parent_kind, row.parent_name) for row in session.scalars(of_models)
    }
    has_weights = any(field in ("init_from", "teacher") for field, _ in names)
    for field, name in sorted(names):
        if field == "tokenizer" and not has_weights:
            yield _tokenizer_node(session, name, run.created_at, tokenizer_digest), "tokenizer"
        elif field in _ROLES and field != "tokenizer":
            model = recorded.get(name) or model_node(session, name, run.created_at) or place_node("model", name)
            yield model, _ROLES[field]


def _tokenizer_node(session: Session, name: str, before: datetime, digest: str | None) -> LineageNode:
    """Return the node of the tokenizer that a name meant at a time: by its digest where that was recorded.

    Else it is the one that was trained into that folder last by then.
    """
    trained = select(DatasetRow).where(DatasetRow.kind == "tokenizer")
    if digest is not None:
        tokenizer = session.scalar(trained.where(DatasetRow.fingerprint == digest))
    else:
        by_then = DatasetRow.recorded_at <= before
        newest = trained.where(DatasetRow.path == name).order_by(by_then.desc(), DatasetRow.recorded_at.desc())
        tokenizer = session.scalar(newest.limit(1))
    if tokenizer is not None:
        return _data_node(tokenizer)
    unknown = place_node("tokenizer", name) if digest is None else LineageNode(digest, "tokenizer", name)
    return model_node(session, name, before) or unknown


def _files(data: DatasetRow, spec: Mapping[str, Any], *, is_here: bool) -> list[str]:
    """Paths of the files that data was made of; a tokenizer's are those that its run's spec names."""
    paths = [str(file["path"]) for file in data.files]
    if not paths and data.kind == "tokenizer":
        named = (spec.get("corpus") or {}).get("files") or ()
        paths = [str(path) for path in ([named] if isinstance(named, str) else named)]
    if is_here:
        paths = [path for pattern in paths for path in _found(pattern)]
    return paths[:_MAX_FILES]


def _found(pattern: str) -> list[str]:
    """Absolute paths that a path or a pattern means here; a URI stays as it is."""
    if "://" in pattern:
        return [pattern]
    place = str(Path(pattern).expanduser().absolute())
    if glob.has_magic(place) and not Path(place).exists():
        return sorted(glob.glob(place, recursive=True)) or [place]  # noqa: PTH207 - any root
    return [place]
