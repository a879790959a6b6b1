"""Data that models were trained and chosen on, for runs that score a model: a score on the same data flatters it."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from orchestrator.registry.groups.split_data import SplitData, digest_paths
from orchestrator.registry.tables import ModelRow, ParameterRow, RunRow

_MODEL = "model"
MODEL_DIGEST = "data.model_digest"
_DIGITS = 16
"""Digits of a model's digest that an evaluation records."""
_VALUES_PER_STATEMENT = 1_000

Origin = Literal["trained", "partly trained", "chosen", "partly chosen", "same file", "apart"]
"""Earlier use of the data of a score: the model was trained on all or some of them, or chosen on all or some;
it was trained or chosen on the same file, of which it is not known whether it was read into the same examples; or
nothing of this is known, and the model was chosen on other data."""


class ModelOrigin(NamedTuple):
    """Data that a model was made with."""

    trained_on: SplitData = SplitData()
    chosen_on: SplitData = SplitData()

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """Origin of a model by the parameters of the run that made it."""
        return cls(SplitData.of(parameters, "train"), SplitData.of(parameters, "validation"))

    def use_of(self, data: SplitData) -> Origin | None:
        """Earlier use of data, the gravest that is certain; None where it is not known.

        >>> origin = ModelOrigin(trained_on=SplitData("first 100", "t"), chosen_on=SplitData("v", "v"))
        >>> [origin.use_of(SplitData(taken, whole)) for taken, whole in (("first 100", "t"), ("t", "t"), ("w", "w"))]
        ['trained', 'partly trained', 'apart']
        """
        trained, chosen = data.overlap(self.trained_on), data.overlap(self.chosen_on)
        if trained in ("all", "some"):
            return "trained" if trained == "all" else "partly trained"
        if chosen in ("all", "some"):
            return "chosen" if chosen == "all" else "partly chosen"
        if "file" in (trained, chosen):
            return "same file"
        return None if data.taken is None or self.chosen_on.taken is None else "apart"


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
        of_makers = ParameterRow.run_id.in_(some), ParameterRow.path.in_(digest_paths(["train", "validation"]))
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
