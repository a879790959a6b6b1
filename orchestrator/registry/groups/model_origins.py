"""Data that models were trained and chosen on, for runs that score a model: a score on the same data flatters it."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Self

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from orchestrator.registry.tables import ModelRow, ParameterRow, RunRow

_MODEL = "model"
MODEL_DIGEST = "data.model_digest"
TRAIN_DIGEST = "data.train_digest"
VALIDATION_DIGEST = "data.validation_digest"
_DIGITS = 16
"""Digits of a model's digest that an evaluation records."""
_VALUES_PER_STATEMENT = 1_000

Origin = Literal["trained", "chosen", "apart"]
"""Earlier use of the data of a score: the model was trained on them, was chosen on them, or neither."""


class ModelOrigin(NamedTuple):
    """Digests of the data that a model was made with; None where they were not recorded."""

    trained_on: str | None = None
    chosen_on: str | None = None

    @classmethod
    def of(cls, digests: Mapping[str, str]) -> Self:
        """Origin of a model by the parameters of the run that made it."""
        return cls(digests.get(TRAIN_DIGEST), digests.get(VALIDATION_DIGEST))

    def use_of(self, data: str | None) -> Origin | None:
        """Earlier use of data with this digest; None where it is not known.

        >>> ModelOrigin("t", "v").use_of("t"), ModelOrigin("t", "v").use_of("v"), ModelOrigin("t", "v").use_of("w")
        ('trained', 'chosen', 'apart')
        """
        if data is not None and data in self:
            return "trained" if data == self.trained_on else "chosen"
        return None if data is None or self.chosen_on is None else "apart"


def load_origins(session: Session, evaluations: Sequence[str]) -> Mapping[str, ModelOrigin]:
    """Data that the model of each of these runs was trained and chosen on, where the run that made it is known.

    A model is found by the digest of its weights, by its label or by its folder, and leads to the run that left it.
    """
    named: dict[str, dict[str, str]] = {run_id: {} for run_id in evaluations}
    asked = select(ParameterRow.run_id, ParameterRow.path, ParameterRow.text)
    for some in _parts(named):
        of_some = asked.where(ParameterRow.run_id.in_(some), ParameterRow.path.in_((_MODEL, MODEL_DIGEST)))
        for run_id, path, text in session.execute(of_some):
            named[run_id][path] = text
    makers = _makers(session, {text for names in named.values() for text in names.values()})
    digests: dict[str, dict[str, str]] = defaultdict(dict)
    for some in _parts({*makers.values()}):
        of_makers = ParameterRow.run_id.in_(some), ParameterRow.path.in_((TRAIN_DIGEST, VALIDATION_DIGEST))
        for run_id, path, text in session.execute(asked.where(*of_makers)):
            digests[run_id][path] = text
    found = {}
    for run_id, names in named.items():
        maker = makers.get(names.get(MODEL_DIGEST, "")) or makers.get(names.get(_MODEL, ""))
        if maker in digests:
            found[run_id] = ModelOrigin.of(digests[maker])
    return found


def _makers(session: Session, names: Collection[str]) -> dict[str, str]:
    """Id of the run that left a model, by those of its digest, label, folder and the run's own id that are names."""
    makers: dict[str, str] = {}
    for some in _parts(names):
        folders = select(RunRow.id, RunRow.model_folder).where(RunRow.model_folder.is_not(None))
        is_named = or_(RunRow.id.in_(some), RunRow.model_folder.in_(some))
        for run_id, folder in session.execute(folders.where(is_named).order_by(RunRow.created_at)):
            makers[str(folder)] = makers[run_id] = run_id
    for some in _parts(names):
        models = select(ModelRow.run_id, ModelRow.name, ModelRow.version, ModelRow.folder, ModelRow.digest)
        labels = [name.rpartition("@")[0] for name in some if "@" in name]
        digest = or_(ModelRow.digest.in_(some), func.substr(ModelRow.digest, 1, _DIGITS).in_(some))
        is_named = or_(ModelRow.name.in_(labels), ModelRow.folder.in_(some), digest)
        for maker, name, version, folder, own in session.execute(models.where(is_named, ModelRow.run_id.is_not(None))):
            makers |= dict.fromkeys((f"{name}@{version}", folder, own, own[:_DIGITS]), str(maker))
    return makers


def _parts(values: Collection[str]) -> Iterator[list[str]]:
    ordered = sorted(values)
    for begin in range(0, len(ordered), _VALUES_PER_STATEMENT):
        yield ordered[begin : begin + _VALUES_PER_STATEMENT]
