"""Runs that made the models that other runs name, and those that made what these were made of, back to the first."""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import Session

from orchestrator.registry.engines.dialects import select_items, select_runs
from orchestrator.registry.groups.group_parameters import load_parameters_of
from orchestrator.registry.groups.split_data import digest_paths
from orchestrator.registry.model_versions import split_version
from orchestrator.registry.parameter_values import RECORDED_DIGITS
from orchestrator.registry.tables import DatasetRow, LineageRow, ModelRow, RunDatasetRow, RunRow
from orchestrator.registry.trial_rows import load_kept_trials, trial_id

_MODEL, _MODEL_DIGEST = "model", "data.model_digest"
NAME_PATHS = frozenset((_MODEL, "rerank", "teacher", "init_from", "recipe.init_from", "pretraining.init_from", "run"))
"""Paths of the parameters that name models: those that an evaluation scores, and those that a model is made of."""
MAKING_PATHS = (*sorted(NAME_PATHS), _MODEL_DIGEST, *digest_paths(["train", "validation"]))
"""Paths of the parameters by which it is known what a run's model was made of, and with which data."""
_RANDOM = "random"
_IN_RUN_FOLDER = re.compile(r"(?:^|/)runs/([0-9a-f]{12})(?:/trials/([0-9a-f]{16}))?(?=/|$)")
"""Path in the folder of a run, which is called by the run's id, or in that of a trial, by its key."""

Parameters = Mapping[str, Any]


class _Reference(NamedTuple):
    """Name of a model in a run."""

    name: str
    digest: str | None
    """Digest of the weights that it meant then; None where it was not recorded. It may mean others here."""


class Makers(NamedTuple):
    """Runs that made the models that other runs name, as far back as they are recorded."""

    direct: Mapping[str, frozenset[str]]
    """Ids of the makers of the models that a run names, by its id: of runs that were asked for, and of makers, as far
    as they name a model that is known here."""
    parameters: Mapping[str, Parameters]
    """Parameters of each maker at `MAKING_PATHS`, by its id."""

    def ancestors_of(self, run_ids: Collection[str]) -> frozenset[str]:
        """Makers of what the models of some makers were made of."""
        found: frozenset[str] = frozenset()
        nearest = frozenset(run_ids)
        while nearest:
            nearest = frozenset().union(*(self.direct.get(run_id, ()) for run_id in nearest)) - found
            found |= nearest
        return found


def load_makers(session: Session, runs: Mapping[str, Parameters]) -> Makers:
    """Load the makers of the models that runs name in their parameters, and of all that these were made of.

    Args:
        runs: parameters of each run, of which those at `MAKING_PATHS` count.
    """
    direct: dict[str, frozenset[str]] = {}
    parameters: dict[str, Parameters] = {}
    unread = runs
    while unread:
        references = _load_references(session, unread)
        makers = _load_referenced(session, frozenset().union(*references.values()))
        for run_id, named in references.items():
            direct[run_id] = frozenset(makers[reference] for reference in named if reference in makers)
        new = {*makers.values()} - parameters.keys()
        unread = load_parameters_of(session, new, MAKING_PATHS)
        parameters |= unread
    return Makers(direct, parameters)


def load_corpus_files(session: Session, run_ids: Collection[str]) -> Mapping[str, frozenset[str]]:
    """Digests of the files of the corpora that runs read, by run; their text was read, whatever labels they have."""
    corpora = select(RunDatasetRow.run_id, DatasetRow.files).join(
        DatasetRow, DatasetRow.fingerprint == RunDatasetRow.fingerprint
    )
    is_read = DatasetRow.kind == "corpus", RunDatasetRow.run_id.in_(select_runs(session, run_ids))
    read: dict[str, frozenset[str]] = defaultdict(frozenset)
    for run_id, files in session.execute(corpora.where(*is_read)):
        read[run_id] |= {file["digest"][:RECORDED_DIGITS] for file in files if file.get("digest")}
    return read


def _load_references(session: Session, runs: Mapping[str, Parameters]) -> dict[str, frozenset[_Reference]]:
    """Models that runs name in their parameters, by run; runs that name none are left out."""
    names = {run_id: some for run_id, own in runs.items() if (some := _names_in(own))}
    meant = _load_meant(session, [run_id for run_id, some in names.items() if any("@" in name for name in some)])
    references = {}
    for run_id, some in names.items():
        own = runs[run_id]
        references[run_id] = frozenset(
            _Reference(name, own.get(_MODEL_DIGEST) if name == own.get(_MODEL) else meant.get((run_id, name)))
            for name in some
        )
    return references


def _names_in(parameters: Parameters) -> list[str]:
    return [
        name for path, name in parameters.items() if path in NAME_PATHS and isinstance(name, str) and name != _RANDOM
    ]


def _load_meant(session: Session, run_ids: Collection[str]) -> dict[tuple[str, str], str]:
    """Digest of the weights that a name in a run meant, by the run's id and the name, as its lineage has recorded it.

    A trial's lineage is that of its sweep, which has the start model of the trial whose model it kept.
    """
    of_run = LineageRow.run_id == func.coalesce(RunRow.parent_id, RunRow.key)
    edges = select(RunRow.id, LineageRow.parent_name, LineageRow.parent).join(LineageRow, of_run)
    is_asked = RunRow.id.in_(select_items(session, run_ids)), LineageRow.role.in_(("weights", "teacher"))
    return {
        (run_id, name): digest[:RECORDED_DIGITS] for run_id, name, digest in session.execute(edges.where(*is_asked))
    }


def _load_referenced(session: Session, references: Collection[_Reference]) -> dict[_Reference, str]:
    """Id of the run that made a model, by how it is named; the maker of a sweep's model is the trial that it kept."""
    if not references:
        return {}
    names = {reference.name for reference in references}
    in_folders = {name: run_id for name in names if (run_id := _run_of_path(name)) is not None}
    plain = {split_version(name)[0] for name in names}
    digests = {reference.digest for reference in references if reference.digest is not None}
    asked = select_items(session, names | plain | digests | {*in_folders.values()})
    runs = {run_id: run_id for run_id in session.scalars(select(RunRow.id).where(RunRow.id.in_(asked)))}
    runs |= {name: run_id for name, run_id in in_folders.items() if run_id in runs}
    of_name, of_digest = _registered(session, asked)
    makers: dict[_Reference, str] = {}
    for reference in references:
        digest, named = of_name.get(reference.name, (reference.digest, runs.get(reference.name)))
        is_meant = named is not None and reference.digest in (None, digest)
        if maker := named if is_meant else of_digest.get(reference.digest):
            makers[reference] = maker
    kept = load_kept_trials(session, {*makers.values()})
    return {reference: kept.get(maker, maker) for reference, maker in makers.items()}


def _registered(
    session: Session, asked: Select[Any]
) -> tuple[dict[str, tuple[str | None, str | None]], dict[str | None, str]]:
    """Registered models with a name, folder or digest that is asked for.

    Returns the digest and the maker of each by its label and its folder, and the maker by the digest.
    """
    models = select(ModelRow.run_id, ModelRow.name, ModelRow.version, ModelRow.folder, ModelRow.digest)
    recorded = func.substr(ModelRow.digest, 1, RECORDED_DIGITS)
    is_asked = or_(ModelRow.name.in_(asked), ModelRow.folder.in_(asked), recorded.in_(asked))
    of_name: dict[str, tuple[str | None, str | None]] = {}
    of_digest: dict[str | None, str] = {}
    for maker, name, version, folder, digest in session.execute(models.where(is_asked, ModelRow.run_id.is_not(None))):
        of_digest[digest[:RECORDED_DIGITS]] = str(maker)
        of_name |= dict.fromkeys((f"{name}@{version}", folder), (digest[:RECORDED_DIGITS], maker))
    return of_name, of_digest


def _run_of_path(name: str) -> str | None:
    """Id of the run or trial in whose folder a path lies; None of a path that lies elsewhere, and of other names."""
    found = _IN_RUN_FOLDER.search(name)
    if found is None:
        return None
    run_id, key = found.groups()
    return str(run_id) if key is None else trial_id(run_id, key)
