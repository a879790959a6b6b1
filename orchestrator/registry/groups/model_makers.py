"""Runs that left the models that other runs name, and those that left what these were made of, back to the first."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session, aliased

from orchestrator.registry.groups.split_data import SplitData
from orchestrator.registry.tables import DatasetRow, ModelRow, ParameterRow, RunDatasetRow, RunRow

_MODEL, _MODEL_DIGEST = "model", "data.model_digest"
_OTHER_NAMES = ("rerank", "teacher", "init_from", "recipe.init_from", "pretraining.init_from", "run")
NAME_PATHS = (_MODEL, _MODEL_DIGEST, *_OTHER_NAMES)
"""Paths of the parameters that name models: those that an evaluation scores, and those that a model is made of."""
_RANDOM = "random"
_SNAPSHOTS = "/snapshots/"
"""Folder of a run in which its snapshots lie; the run's own folder is called by its id."""
_DIGITS = 16
"""Digits of a digest that runs record."""
_VALUES_PER_STATEMENT = 1_000

Parameters = Mapping[str, Any]


class Makers(NamedTuple):
    """Runs that left models, by what other runs call these, and what is recorded of each."""

    run_ids: Mapping[str, str]
    """Id of the run that left a model, by its digest, label or folder, or the run's own id."""
    parameters: Mapping[str, Parameters]
    """Parameters of each of these runs that were asked for, with those at `NAME_PATHS`."""

    def direct(self, parameters: Parameters) -> frozenset[str]:
        """Runs that left the models that a run names in its parameters."""
        digest = parameters.get(_MODEL_DIGEST)
        model = digest if digest in self.run_ids else parameters.get(_MODEL)
        names = (model, *map(parameters.get, _OTHER_NAMES))
        return frozenset(filter(None, (self.run_ids.get(name or _RANDOM) for name in names)))

    def all_before(self, run_ids: Collection[str]) -> frozenset[str]:
        """Runs that left what the models of these were made of, as far back as they are recorded."""
        found: frozenset[str] = frozenset()
        nearest = frozenset(run_ids)
        while nearest:
            nearest = frozenset().union(*(self.direct(self.parameters[each]) for each in nearest)) - found
            found |= nearest
        return found

    def load_texts(self, session: Session) -> Mapping[str, Sequence[SplitData]]:
        """Files of the corpora that these runs read, by run; a model learned from their text, not from their labels."""
        read: dict[str, list[SplitData]] = defaultdict(list)
        corpora = select(RunDatasetRow.run_id, DatasetRow.fingerprint, DatasetRow.files).join(
            DatasetRow, DatasetRow.fingerprint == RunDatasetRow.fingerprint
        )
        for some in _parts(self.parameters):
            is_read = DatasetRow.kind == "corpus", RunDatasetRow.run_id.in_(some)
            for run_id, fingerprint, files in session.execute(corpora.where(*is_read)):
                digests = [file["digest"][:_DIGITS] for file in files if file.get("digest")]
                read[run_id] += [SplitData(fingerprint, fingerprint, digest) for digest in digests]
        return read


def load_makers(session: Session, runs: Iterable[Parameters], paths: Iterable[str]) -> Makers:
    """Runs that left the models that runs name in their parameters, and those that left what these were made of.

    Args:
        paths: paths of further parameters to load of each of them.
    """
    run_ids: dict[str, str] = {}
    parameters: dict[str, Parameters] = {}
    asked: set[str] = {_RANDOM}
    while named := {name for each in runs for path in NAME_PATHS if (name := each.get(path)) is not None} - asked:
        asked |= named
        found = _runs_called(session, named)
        run_ids |= found
        loaded = _load_parameters(session, {*found.values()} - parameters.keys(), (*NAME_PATHS, *paths))
        parameters |= loaded
        runs = loaded.values()
    return Makers(run_ids, parameters)


def _runs_called(session: Session, names: Collection[str]) -> dict[str, str]:
    """Id of the run that left a model, by those of its digest, label, folder and the run's own id that are names.

    The model of a sweep is that of the trial whose model it kept.
    """
    found: dict[str, str] = {}
    snapshots = {name: name.rpartition(_SNAPSHOTS)[0].rpartition("/")[2] for name in names if _SNAPSHOTS in name}
    for some in _parts({*names, *snapshots.values()}):
        folders = select(RunRow.id, RunRow.model_folder).where(RunRow.model_folder.is_not(None))
        is_named = or_(RunRow.id.in_(some), RunRow.model_folder.in_(some))
        for run_id, folder in session.execute(folders.where(is_named).order_by(RunRow.created_at)):
            found[str(folder)] = found[run_id] = run_id
    found |= {name: found[run_id] for name, run_id in snapshots.items() if run_id in found}
    for some in _parts(names):
        models = select(ModelRow.run_id, ModelRow.name, ModelRow.version, ModelRow.folder, ModelRow.digest)
        labels = [name.rpartition("@")[0] for name in some if "@" in name]
        digest = or_(ModelRow.digest.in_(some), func.substr(ModelRow.digest, 1, _DIGITS).in_(some))
        is_named = or_(ModelRow.name.in_(labels), ModelRow.folder.in_(some), digest)
        for maker, name, version, folder, own in session.execute(models.where(is_named, ModelRow.run_id.is_not(None))):
            found |= dict.fromkeys((f"{name}@{version}", folder, own, own[:_DIGITS]), str(maker))
    kept = _kept_trials(session, {*found.values()})
    return {name: kept.get(run_id, run_id) for name, run_id in found.items() if name in names}


def _kept_trials(session: Session, run_ids: Collection[str]) -> dict[str, str]:
    """Id of the trial whose model a sweep kept, by the sweep's id: its start model may be one of several."""
    sweep, trial = aliased(RunRow), aliased(RunRow)
    is_kept = (trial.parent_id == sweep.id) & (trial.model_folder == sweep.model_folder)
    statement = select(sweep.id, trial.id).join(trial, is_kept)
    rows = [session.execute(statement.where(sweep.id.in_(some))) for some in _parts(run_ids)]
    return {sweep_id: trial_id for part in rows for sweep_id, trial_id in part}


def _load_parameters(session: Session, run_ids: Collection[str], paths: Sequence[str]) -> Mapping[str, Parameters]:
    """Texts of the parameters of each run at some paths."""
    loaded: dict[str, dict[str, str]] = {run_id: {} for run_id in run_ids}
    for some in _parts(run_ids):
        is_asked = ParameterRow.run_id.in_(some), ParameterRow.path.in_(paths), ParameterRow.kind == "text"
        for run_id, path, text in session.execute(
            select(ParameterRow.run_id, ParameterRow.path, ParameterRow.text).where(*is_asked)
        ):
            loaded[run_id][path] = text
    return loaded


def _parts(values: Collection[str]) -> Iterator[list[str]]:
    ordered = sorted(values)
    for begin in range(0, len(ordered), _VALUES_PER_STATEMENT):
        yield ordered[begin : begin + _VALUES_PER_STATEMENT]
