"""Data that models were trained and chosen on: a score on the same data flatters, and on test data it is refused."""

from collections.abc import Collection, Mapping
from functools import cache, reduce
from typing import Any, Literal, NamedTuple, Self, get_args

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.registry.engines.dialects import select_runs
from orchestrator.registry.groups.group_parameters import load_parameters_of
from orchestrator.registry.groups.model_makers import MAKING_PATHS, load_corpus_files, load_makers
from orchestrator.registry.groups.split_data import DigestSets, SplitData, digest_paths, taken_path
from orchestrator.registry.tables import NameRow, SeriesRow
from orchestrator.registry.trial_rows import load_kept_trials

TEST_DIGEST = taken_path("test")
"""Parameter with the digest of a run's test data."""

ORIGIN_PATHS = (*MAKING_PATHS, *digest_paths(["test"]))
"""Paths of the parameters by which a run's data are known, and those that its model was made with."""

_Use = Literal[
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
_GRAVEST_FIRST: tuple[_Use, ...] = get_args(_Use)

Origin = _Use | Literal["apart"]
"""Earlier use of the data of a score: the model was trained on all or some of them, or chosen on all or some;
`earlier` where a model that it was made of was, a start model or teacher; any of these was trained or chosen on the
same file, of which it is not known whether it was read into the same examples; or nothing of this is known, and the
model was chosen on other data."""

_SENTENCES: Mapping[Origin | None, str] = {
    "trained": "{model} was trained on {data}",
    "trained earlier": "{model} was made of one that was trained on {data}",
    "partly trained": "{model} was trained on at least some of {data}",
    "partly trained earlier": "{model} was made of one that was trained on at least some of {data}",
    "chosen": "{model} was chosen on {data}",
    "chosen earlier": "{model} was made of one that was chosen on {data}",
    "partly chosen": "{model} was chosen on at least some of {data}",
    "partly chosen earlier": "{model} was made of one that was chosen on at least some of {data}",
    "same file": "{model}, or one that it was made of, was trained or chosen on the same file, read another way: "
    "whether on {data} is not known",
    "apart": "{model} was chosen on other data",
    None: "it is not known on which data {model} was chosen",
}


def origin_sentence(origin: Origin | None, model: str, data: str) -> str:
    """Sentence on the earlier use of data.

    >>> origin_sentence("partly chosen earlier", "its model", "these data")
    'its model was made of one that was chosen on at least some of these data'
    """
    return _SENTENCES[origin].format(model=model, data=data)


class ModelData(NamedTuple):
    """Data that models were trained on, and those that they were chosen on."""

    trained_on: DigestSets = DigestSets()
    chosen_on: DigestSets = DigestSets()

    @staticmethod
    def of(parameters: Mapping[str, Any]) -> "ModelData":
        """Data that a run trains and chooses its model on, by its parameters."""
        return ModelData(*(DigestSets.of(SplitData.of(parameters, split)) for split in ("train", "validation")))

    def merged(self, other: Self) -> Self:
        """These data and those of other models."""
        return type(self)(self.trained_on.merged(other.trained_on), self.chosen_on.merged(other.chosen_on))

    def use_of(self, data: SplitData) -> _Use | None:
        """Use that was made of data, the gravest that is known; None where nothing says that they were used."""
        trained, chosen = self.trained_on.overlap(data), self.chosen_on.overlap(data)
        if trained in ("all", "some"):
            return "trained" if trained == "all" else "partly trained"
        if chosen in ("all", "some"):
            return "chosen" if chosen == "all" else "partly chosen"
        return "same file" if "file" in (trained, chosen) else None


class ModelOrigin(NamedTuple):
    """Data that a model was made with."""

    own: ModelData = ModelData()
    """Data of the run that made it."""
    earlier: ModelData = ModelData()
    """Data of the models that it was made of, as far back as they are recorded."""

    def use_of(self, data: SplitData) -> Origin | None:
        """Earlier use of data, the gravest that is certain; None where it is not known.

        >>> train, validation = (DigestSets.of(SplitData(*digests)) for digests in (("first 100", "t"), ("v", "v")))
        >>> origin = ModelOrigin(ModelData(train, validation))
        >>> [origin.use_of(SplitData(taken, whole)) for taken, whole in (("first 100", "t"), ("t", "t"), ("w", "w"))]
        ['trained', 'partly trained', 'apart']
        >>> ModelOrigin(ModelData(), origin.own).use_of(SplitData("t", "t"))
        'partly trained earlier'
        """
        own, earlier = self.own.use_of(data), self.earlier.use_of(data)
        if own is None and earlier is None:
            return "apart" if data.taken is not None and self.own.chosen_on.taken else None
        found = (own, earlier if earlier in (None, "same file") else f"{earlier} earlier")
        return next(origin for origin in _GRAVEST_FIRST if origin in found)


def load_origins(session: Session, runs: Mapping[str, Mapping[str, Any]]) -> dict[str, ModelOrigin]:
    """Data that the model of each run was trained and chosen on, and those of all models that it was made of.

    Args:
        runs: parameters of each run, of which those at `ORIGIN_PATHS` count. A run that names a `model` is an
            evaluation: it made none, and its model is that one.
    """
    makers = load_makers(session, runs)
    corpora = load_corpus_files(session, makers.parameters)

    @cache
    def data_of(run_ids: frozenset[str]) -> ModelData:
        """Data that several runs used."""
        texts = [ModelData(DigestSets(file=corpora[run_id])) for run_id in run_ids if run_id in corpora]
        return reduce(
            ModelData.merged, [*(ModelData.of(makers.parameters[run_id]) for run_id in run_ids), *texts], ModelData()
        )

    ancestors_of = cache(makers.ancestors_of)
    origins = {}
    for run_id, parameters in runs.items():
        nearest = makers.direct.get(run_id, frozenset())
        ancestors = ancestors_of(nearest)
        if "model" in parameters:
            origins[run_id] = ModelOrigin(data_of(nearest), data_of(ancestors))
        else:
            origins[run_id] = ModelOrigin(ModelData.of(parameters), data_of(nearest | ancestors))
    return origins


def load_test_refusals(session: Session, run_ids: Collection[str]) -> dict[str, str]:
    """Reason for each of these runs, trials and evaluations whose score on the test split is refused, by its id.

    A file that was read another way may have given other examples, and refuses nothing.
    """
    of_tests = select(NameRow.key).where(NameRow.text.startswith("test."))
    is_tested = SeriesRow.run_id.in_(select_runs(session, run_ids)), SeriesRow.name.in_(of_tests)
    scored = session.scalars(select(SeriesRow.run_id).where(*is_tested).distinct()).all()
    kept = load_kept_trials(session, scored)  # the score of a sweep is that of the trial whose model it kept
    texts = load_parameters_of(session, {*scored, *kept.values()}, ORIGIN_PATHS)
    made_with = {run_id: texts[run_id] | texts.get(kept.get(run_id, ""), {}) for run_id in scored}
    tested = {run_id: own for run_id, own in made_with.items() if TEST_DIGEST in own}
    origins = load_origins(session, tested)
    uses = {run_id: origins[run_id].use_of(SplitData.of(own, "test")) for run_id, own in tested.items()}
    return {
        run_id: origin_sentence(use, "the model", "the test data")
        for run_id, use in uses.items()
        if use not in (None, "apart", "same file")
    }
