"""Data that models were trained and chosen on, for runs that score a model: a score on the same data flatters it."""

from collections.abc import Collection, Mapping
from functools import cache, lru_cache, reduce
from typing import Any, Literal, NamedTuple, Self, get_args

from sqlalchemy.orm import Session

from orchestrator.registry.groups.model_makers import NAME_PATHS, load_makers
from orchestrator.registry.groups.split_data import SplitData, UsedData, digest_paths

_MAKING_PATHS = digest_paths(["train", "validation"])
ORIGIN_PATHS = (*NAME_PATHS, *_MAKING_PATHS)
"""Paths of the parameters by which the origin of a run's model is known."""

_CertainOrigin = Literal[
    "trained",
    "trained earlier",
    "partly trained",
    "partly trained earlier",
    "chosen",
    "chosen earlier",
    "partly chosen",
    "partly chosen earlier",
    "same file",
]
_GRAVEST_FIRST: tuple[_CertainOrigin, ...] = get_args(_CertainOrigin)

Origin = _CertainOrigin | Literal["apart"]
"""Earlier use of the data of a score: the model was trained on all or some of them, or chosen on all or some;
`earlier` where it was so with a model that it was made of, a start model or teacher; it was trained or chosen on the
same file, of which it is not known whether it was read into the same examples; or nothing of this is known, and the
model was chosen on other data."""


class DataUse(NamedTuple):
    """Data that models were trained on, and those that they were chosen on."""

    trained_on: UsedData = UsedData()
    chosen_on: UsedData = UsedData()

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """Data that a run trains and chooses its model on, by its parameters."""
        return cls(*_used_data(*(SplitData.of(parameters, split) for split in ("train", "validation"))))

    def merged(self, other: Self) -> Self:
        """These data and those of another use."""
        return type(self)(self.trained_on.merged(other.trained_on), self.chosen_on.merged(other.chosen_on))

    def of_data(self, data: SplitData) -> _CertainOrigin | None:
        """Use that was made of data, the gravest that is known; None where nothing says that they were used."""
        trained, chosen = self.trained_on.overlap(data), self.chosen_on.overlap(data)
        if trained in ("all", "some"):
            return "trained" if trained == "all" else "partly trained"
        if chosen in ("all", "some"):
            return "chosen" if chosen == "all" else "partly chosen"
        return "same file" if "file" in (trained, chosen) else None


class ModelOrigin(NamedTuple):
    """Data that a model was made with."""

    own: DataUse = DataUse()
    """Data of the run that left it."""
    earlier: DataUse = DataUse()
    """Data of the models that it was made of, as far back as they are recorded."""

    def use_of(self, data: SplitData) -> Origin | None:
        """Earlier use of data, the gravest that is certain; None where it is not known.

        >>> train, validation = (UsedData.of([SplitData(*digests)]) for digests in (("first 100", "t"), ("v", "v")))
        >>> origin = ModelOrigin(DataUse(train, validation))
        >>> [origin.use_of(SplitData(taken, whole)) for taken, whole in (("first 100", "t"), ("t", "t"), ("w", "w"))]
        ['trained', 'partly trained', 'apart']
        >>> ModelOrigin(DataUse(), origin.own).use_of(SplitData("t", "t"))
        'partly trained earlier'
        """
        own, earlier = self.own.of_data(data), self.earlier.of_data(data)
        found = (own, earlier if earlier in (None, "same file") else f"{earlier} earlier")
        gravest = next((origin for origin in _GRAVEST_FIRST if origin in found), None)
        return gravest or ("apart" if data.taken is not None and self.own.chosen_on.taken else None)


def load_origins(
    session: Session, runs: Mapping[str, Mapping[str, Any]], evaluations: Collection[str]
) -> dict[str, ModelOrigin]:
    """Data that the model of each run was trained and chosen on, and those of all models that it was made of.

    Args:
        runs: parameters of each run, of which those at `ORIGIN_PATHS` count.
        evaluations: ids of the runs that made no model themselves; theirs is the one that they scored.
    """
    makers = load_makers(session, runs.values(), _MAKING_PATHS)
    texts = makers.load_texts(session)

    @cache
    def merged(of_runs: frozenset[str]) -> DataUse:
        """Data of several runs, and the text that they read."""
        uses = [DataUse.of(makers.parameters[run_id]) for run_id in of_runs]
        read = [texts[run_id] for run_id in of_runs if run_id in texts]
        return reduce(DataUse.merged, [*uses, *(DataUse(UsedData.of(files)) for files in read)], DataUse())

    is_evaluation = frozenset(evaluations).__contains__
    origins = {}
    for run_id, parameters in runs.items():
        direct = makers.direct(parameters)
        if is_evaluation(run_id):
            origins[run_id] = ModelOrigin(merged(direct), merged(makers.all_before(direct)))
        else:
            origins[run_id] = ModelOrigin(DataUse.of(parameters), merged(direct | makers.all_before(direct)))
    return origins


@lru_cache(maxsize=1_000)
def _used_data(*splits: SplitData) -> tuple[UsedData, ...]:
    """Each split as the data that were used; the groups of a board share a few."""
    return tuple(UsedData.of([split]) for split in splits)
