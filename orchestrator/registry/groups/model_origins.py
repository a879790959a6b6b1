"""Data that models were chosen on, for runs that score a model: a score on the same data flatters it."""

from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.registry.tables import ModelRow, ParameterRow, RunRow

_MODEL = "model"
MODEL_DIGEST = "data.model_digest"
_VALIDATION = "data.validation_digest"


def load_origins(session: Session, evaluations: Sequence[str]) -> Mapping[str, str]:
    """Digest of the validation data that the model of each of these runs was chosen on, where it is known.

    A model is found by the digest of its weights, by its label or by its folder, and leads to the run that left it.
    """
    if not evaluations:
        return {}
    named: dict[str, dict[str, str]] = {run_id: {} for run_id in evaluations}
    asked = select(ParameterRow.run_id, ParameterRow.path, ParameterRow.text)
    for run_id, path, text in session.execute(asked.where(ParameterRow.path.in_((_MODEL, MODEL_DIGEST)))):
        if run_id in named:
            named[run_id][path] = text
    makers = _makers(session)
    chosen = select(ParameterRow.run_id, ParameterRow.text).where(ParameterRow.path == _VALIDATION)
    validation = {row.run_id: row.text for row in session.execute(chosen)}
    found = {}
    for run_id, names in named.items():
        maker = makers.get(names.get(MODEL_DIGEST, "")) or makers.get(names.get(_MODEL, ""))
        if maker in validation:
            found[run_id] = validation[maker]
    return found


def _makers(session: Session) -> dict[str, str]:
    """Id of the run that left a model, by the model's digest, label, folder, and by the run's own id."""
    makers: dict[str, str] = {}
    folders = select(RunRow.id, RunRow.model_folder).where(RunRow.model_folder.is_not(None))
    for run_id, folder in session.execute(folders.order_by(RunRow.created_at)):
        makers[str(folder)] = makers[run_id] = run_id
    models = select(ModelRow.run_id, ModelRow.name, ModelRow.version, ModelRow.folder, ModelRow.digest)
    for maker, name, version, folder, digest in session.execute(models):
        if maker is not None:
            makers |= dict.fromkeys((f"{name}@{version}", folder, digest, digest[:16]), maker)
    return makers
