"""Runs that made the models that other runs name, and those that made what these were made of, back to the first."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from orchestrator.registry.engines.dialects import select_items
from orchestrator.registry.groups.split_data import digest_paths
from orchestrator.registry.parameter_values import RECORDED_DIGITS
from orchestrator.registry.runs.kept_trials import load_kept_trials
from orchestrator.registry.runs.run_parameters import load_texts
from orchestrator.registry.tables import DatasetRow, ModelRow, RunDatasetRow, RunRow

_MODEL, _MODEL_DIGEST = "model", "data.model_digest"
_OTHER_NAMES = ("rerank", "teacher", "init_from", "recipe.init_from", "pretraining.init_from", "run")
NAME_PATHS = (_MODEL, _MODEL_DIGEST, *_OTHER_NAMES)
"""Paths of the parameters that name models: those that an evaluation scores, and those that a model is made of."""
_SNAPSHOTS = "/snapshots/"
"""Folder of a run in which its snapshots lie; the run's own folder is called by its id."""

Parameters = Mapping[str, Any]


class Makers(NamedTuple):
    """Runs that made models, by what other runs call these."""

    run_ids: Mapping[str, str]
    """Id of the run that made a model, by the model's digest, label or folder, or the run's own id."""
    parameters: Mapping[str, Parameters]
    """Parameters of each of these runs: names of models, and digests of training and validation data."""

    def makers_of(self, parameters: Parameters) -> frozenset[str]:
        """Runs that made the models that a run names in its parameters."""
        digest = parameters.get(_MODEL_DIGEST)
        model = digest if digest in self.run_ids else parameters.get(_MODEL)
        names = (model, *(parameters.get(path) for path in _OTHER_NAMES))
        return frozenset(self.run_ids[name] for name in names if name is not None and name in self.run_ids)

    def ancestors_of(self, run_ids: Collection[str]) -> frozenset[str]:
        """Runs that made what the models of these were made of, as far back as they are recorded."""
        found: frozenset[str] = frozenset()
        nearest = frozenset(run_ids)
        while nearest:
            nearest = frozenset().union(*(self.makers_of(self.parameters[each]) for each in nearest)) - found
            found |= nearest
        return found


def load_makers(session: Session, runs: Iterable[Parameters]) -> Makers:
    """Load the runs that made the models that runs name in their parameters, and the ancestors of these models."""
    run_ids: dict[str, str] = {}
    parameters: dict[str, Parameters] = {}
    asked = {"random"}  # no model
    while names := {name for each in runs for path in NAME_PATHS if (name := each.get(path)) is not None} - asked:
        asked |= names
        found = _runs_called(session, names)
        run_ids |= found
        paths = [*NAME_PATHS, *digest_paths(["train", "validation"])]
        loaded = load_texts(session, {*found.values()} - parameters.keys(), paths)
        parameters |= loaded
        runs = loaded.values()
    return Makers(run_ids, parameters)


def load_corpus_files(session: Session, run_ids: Collection[str]) -> Mapping[str, frozenset[str]]:
    """Digests of the files of the corpora that runs read, by run; their text was read, whatever labels they have."""
    corpora = select(RunDatasetRow.run_id, DatasetRow.files).join(
        DatasetRow, DatasetRow.fingerprint == RunDatasetRow.fingerprint
    )
    is_read = DatasetRow.kind == "corpus", RunDatasetRow.run_id.in_(select_items(session, run_ids))
    read: dict[str, frozenset[str]] = defaultdict(frozenset)
    for run_id, files in session.execute(corpora.where(*is_read)):
        read[run_id] |= {file["digest"][:RECORDED_DIGITS] for file in files if file.get("digest")}
    return read


def _runs_called(session: Session, names: Collection[str]) -> dict[str, str]:
    """Id of the run that made a model, by those of the model's digest, label, folder and the run's id that are names.

    The model of a sweep is that of the trial whose model it kept.
    """
    found: dict[str, str] = {}
    snapshots = {name: name.rpartition(_SNAPSHOTS)[0].rpartition("/")[2] for name in names if _SNAPSHOTS in name}
    asked = select_items(session, {*names, *snapshots.values(), *(name.rpartition("@")[0] for name in names)})
    folders = select(RunRow.id, RunRow.model_folder).where(RunRow.model_folder.is_not(None))
    is_asked = or_(RunRow.id.in_(asked), RunRow.model_folder.in_(asked))
    for run_id, folder in session.execute(folders.where(is_asked).order_by(RunRow.created_at)):
        found[str(folder)] = found[run_id] = run_id
    found |= {name: found[run_id] for name, run_id in snapshots.items() if run_id in found}
    models = select(ModelRow.run_id, ModelRow.name, ModelRow.version, ModelRow.folder, ModelRow.digest)
    recorded = func.substr(ModelRow.digest, 1, RECORDED_DIGITS)
    is_asked = or_(*(each.in_(asked) for each in (ModelRow.name, ModelRow.folder, ModelRow.digest, recorded)))
    for maker, name, version, folder, digest in session.execute(models.where(is_asked, ModelRow.run_id.is_not(None))):
        found |= dict.fromkeys((f"{name}@{version}", folder, digest, digest[:RECORDED_DIGITS]), str(maker))
    kept = load_kept_trials(session, {*found.values()})
    return {name: kept.get(run_id, run_id) for name, run_id in found.items() if name in names}
