"""Data that models were trained and chosen on: a score on the same data flatters, and on test data it is refused.

A split's data are known by digests of the examples that a run took, of the whole split, and of the file. Models are
followed from the names in runs' parameters to the runs that made them, and from these to what they were made of, back
to the first.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple, Self

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from orchestrator.registry.column_types import name_of_key
from orchestrator.registry.engines.dialects import json_object, select_items, select_runs
from orchestrator.registry.parameter_values import (
    FILE_DIGEST,
    KIND_END,
    RECORDED_DIGITS,
    TAKEN_DIGEST,
    WHOLE_DIGEST,
    decode_stored,
)
from orchestrator.registry.registered_models import split_version
from orchestrator.registry.tables import (
    DatasetRow,
    LineageRow,
    ModelRow,
    NameRow,
    ParameterRow,
    RunDatasetRow,
    RunRow,
    SeriesRow,
)
from orchestrator.registry.trial_rows import load_kept_trials, trial_id
from orchestrator.results import Split

Parameters = Mapping[str, Any]


class SplitData(NamedTuple):
    """Digests of the data of one split; None where they were not recorded."""

    taken: str | None = None
    """Digest of the examples that were used: of the file, of how it was read, and of the limit."""
    whole: str | None = None
    """The same digest without the limit; that of the examples themselves where there was none."""
    file: str | None = None
    """Digest of the file's content, however it was read."""

    @classmethod
    def of(cls, parameters: Parameters, split: Split) -> Self:
        """Data of a split by the parameters of a run. Where no whole was recorded, the examples are taken for it."""
        taken, whole, file = map(parameters.get, _paths(split))
        return cls(taken, taken if whole is None else whole, file)


def taken_path(split: Split) -> str:
    """Path of the parameter with the digest of the examples of a split that a run took."""
    return _paths(split)[0]


@cache
def _paths(split: Split) -> tuple[str, str, str]:
    """Paths of a split's digests; a board of many groups asks for the same few again and again."""
    return f"data.{split}{TAKEN_DIGEST}", f"data.{split}{WHOLE_DIGEST}", f"data.{split}{FILE_DIGEST}"


TEST_DIGEST = taken_path("test")
"""Parameter with the digest of a run's test data."""
_MODEL, _MODEL_DIGEST, _RANDOM = "model", "data.model_digest", "random"
NAME_PATHS = frozenset((_MODEL, "rerank", "teacher", "init_from", "recipe.init_from", "pretraining.init_from", "run"))
"""Paths of the parameters that name models: those that an evaluation scores, and those that a model is made of."""
_MAKING_PATHS = (*NAME_PATHS, _MODEL_DIGEST, *_paths("train"), *_paths("validation"))
"""Paths of the parameters by which it is known what a run's model was made of, and with which data."""
_IN_RUN_FOLDER = re.compile(r"(?:^|/)runs/([0-9a-f]{12})(?:/trials/([0-9a-f]{16}))?(?=/|$)")
"""Path in the folder of a run, which is called by the run's id, or in that of a trial, by its key."""

Origin = str
"""Earlier use of the data of a score: the model was `trained` or `chosen` on them, before these words `partly` where on
some of them at least, after them `earlier` where a model that it was made of was, a start model or teacher; `same
file`: any of these was so on their file, of which it is not known whether it was read into the same examples; `apart`:
nothing of this is known, and the model was chosen on other data."""
_SAME_FILE, _APART = "same file", "apart"
_GRAVEST_FIRST = [
    *(f"{part}{use}{when}" for use in ("trained", "chosen") for part in ("", "partly ") for when in ("", " earlier")),
    _SAME_FILE,
]


def origin_sentence(origin: Origin | None, model: str, data: str) -> str:
    """Sentence on the earlier use of data.

    >>> origin_sentence("partly chosen earlier", "its model", "these data")
    'its model was made of one that was chosen on at least some of these data'
    >>> origin_sentence("trained", "the model", "the test data")
    'the model was trained on the test data'
    """
    if origin is None:
        return f"it is not known on which data {model} was chosen"
    if origin == _SAME_FILE:
        how = "was trained or chosen on the same file, read another way"
        return f"{model}, or one that it was made of, {how}: whether on {data} is not known"
    made = "made of one that was " if origin.endswith(" earlier") else ""
    some = "at least some of " if origin.startswith("partly ") else ""
    use = origin.removeprefix("partly ").removesuffix(" earlier")
    return f"{model} was chosen on other data" if origin == _APART else f"{model} was {made}{use} on {some}{data}"


Used = frozenset[tuple[str, str, str]]
"""Data that models were `trained` or `chosen` on: such a use, the kind of digest as `SplitData` has it, and the digest.

Of data of which it is not known what was taken, there is none.
"""


def data_used(parameters: Parameters) -> Used:
    """Data that a run trains and chooses its model on, by its parameters."""
    uses: list[tuple[str, Split]] = [("trained", "train"), ("chosen", "validation")]
    return frozenset(
        (use, kind, digest)
        for use, split in uses
        for data in [SplitData.of(parameters, split)]
        for kind, digest in data._asdict().items()
        if data.taken is not None and digest is not None
    )


def use_of(used: Used, data: SplitData) -> Origin | None:
    """Use that was made of the data of a score, the gravest that is known; None where nothing says that they were used.

    A limit takes the first examples (`max_train_examples`), and no split is without examples: two parts of one whole
    share the first example at least. Of a file that was read another way, as with other labels or without its broken
    records, nothing is certain: the examples that both took may be different ones.

    >>> part = frozenset([("trained", "taken", "first 100"), ("trained", "whole", "w"), ("trained", "file", "f")])
    >>> [use_of(part, SplitData(taken, "w", "f")) for taken in ("first 100", "w")]
    ['trained', 'partly trained']
    >>> use_of(part, SplitData("otherwise", "otherwise", "f")), use_of(part, SplitData("x", "x", "x"))
    ('same file', None)
    """
    if data.taken is None:
        return None
    for use in ("trained", "chosen"):
        if not used.isdisjoint(((use, "taken", data.taken), (use, "taken", str(data.whole)))):
            return use
        if (use, "whole", data.whole) in used:
            return f"partly {use}"
    return _SAME_FILE if not used.isdisjoint((use, "file", str(data.file)) for use in ("trained", "chosen")) else None


class ModelOrigin(NamedTuple):
    """Data that a model was made with."""

    own: Used = frozenset()
    """Data of the run that made it."""
    earlier: Used = frozenset()
    """Data of the models that it was made of, as far back as they are recorded."""

    def use_of(self, data: SplitData) -> Origin | None:
        """Earlier use of data, the gravest that is certain; None where it is not known."""
        own, earlier = use_of(self.own, data), use_of(self.earlier, data)
        if own is None and earlier is None:
            is_chosen = any(use == "chosen" for use, _, _ in self.own)
            return _APART if data.taken is not None and is_chosen else None
        found = (own, earlier if earlier in (None, _SAME_FILE) else f"{earlier} earlier")
        return next(origin for origin in _GRAVEST_FIRST if origin in found)


def load_test_refusals(session: Session, run_ids: Collection[str]) -> dict[str, str]:
    """Reason for each of these runs, trials and evaluations whose score on the test split is refused, by its id.

    A file that was read another way may have given other examples, and refuses nothing.
    """
    of_tests = select(NameRow.key).where(NameRow.text.startswith("test."))
    is_tested = SeriesRow.run_id.in_(select_runs(session, run_ids)), SeriesRow.name.in_(of_tests)
    scored = session.scalars(select(SeriesRow.run_id).where(*is_tested).distinct()).all()
    kept = load_kept_trials(session, scored)  # the score of a sweep is that of the trial whose model it kept
    texts = load_parameters_of(session, {*scored, *kept.values()}, (*_MAKING_PATHS, *_paths("test")))
    made_with = {run_id: texts[run_id] | texts.get(kept.get(run_id, ""), {}) for run_id in scored}
    tested = {run_id: own for run_id, own in made_with.items() if TEST_DIGEST in own}
    origins = load_origins(session, tested)
    uses = {run_id: origins[run_id].use_of(SplitData.of(own, "test")) for run_id, own in tested.items()}
    return {
        run_id: origin_sentence(use, "the model", "the test data")
        for run_id, use in uses.items()
        if use not in (None, _APART, _SAME_FILE)
    }


def load_origins(session: Session, runs: Mapping[str, Parameters]) -> dict[str, ModelOrigin]:
    """Data that the model of each run was trained and chosen on, and those of all models that it was made of.

    Args:
        runs: parameters of each run. A run that names a `model` is an evaluation: it made none, and its model is that
            one.
    """
    makers: dict[str, frozenset[str]] = {}  # of the models that a run names, as far as they are known here
    parameters: dict[str, Parameters] = {}
    unread = runs
    while unread:
        references = _load_references(session, unread)
        found = _load_referenced(session, frozenset().union(*references.values()))
        for run_id, named in references.items():
            makers[run_id] = frozenset(found[reference] for reference in named if reference in found)
        unread = load_parameters_of(session, {*found.values()} - parameters.keys(), _MAKING_PATHS)
        parameters |= unread
    corpora = _load_corpus_files(session, parameters)

    @cache
    def data_of(run_ids: frozenset[str]) -> Used:
        texts = (("trained", "file", file) for run_id in run_ids for file in corpora.get(run_id, ()))
        return frozenset(texts).union(*(data_used(parameters[run_id]) for run_id in run_ids))

    @cache
    def ancestors_of(run_ids: frozenset[str]) -> frozenset[str]:
        """Makers of what the models of some makers were made of."""
        found, nearest = frozenset[str](), run_ids
        while nearest:
            nearest = frozenset().union(*(makers.get(run_id, ()) for run_id in nearest)) - found
            found |= nearest
        return found

    origins = {}
    for run_id, own in runs.items():
        nearest = makers.get(run_id, frozenset())
        earlier = ancestors_of(nearest)
        is_evaluation = _MODEL in own
        made_with = data_of(nearest) if is_evaluation else data_used(own)
        origins[run_id] = ModelOrigin(made_with, data_of(earlier if is_evaluation else nearest | earlier))
    return origins


_Reference = tuple[str, str | None]
"""Name of a model in a run, and the digest of the weights that it meant then, None where that was not recorded: it may
mean others here."""


def _load_references(session: Session, runs: Mapping[str, Parameters]) -> dict[str, frozenset[_Reference]]:
    """Models that runs name in their parameters, by run; runs that name none are left out."""
    names = {run_id: some for run_id, own in runs.items() if (some := _names_in(own))}
    meant = _load_meant(session, [run_id for run_id, some in names.items() if any("@" in name for name in some)])
    return {
        run_id: frozenset(
            (name, own.get(_MODEL_DIGEST) if name == own.get(_MODEL) else meant.get((run_id, name))) for name in some
        )
        for run_id, some in names.items()
        for own in [runs[run_id]]
    }


def _names_in(own: Parameters) -> list[str]:
    return [name for path in NAME_PATHS & own.keys() if isinstance(name := own[path], str) and name != _RANDOM]


def _load_meant(session: Session, run_ids: Collection[str]) -> dict[tuple[str, str], str]:
    """Digest of the weights that a name in a run meant, by the run's id and the name, as its lineage has recorded it.

    A trial's lineage is that of its sweep, which has the start model of the trial whose model it kept.
    """
    if not run_ids:
        return {}
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
    names = {name for name, _ in references}
    in_folders = {name: run_id for name in names if (run_id := _run_of_path(name)) is not None}
    plain = {split_version(name)[0] for name in names}
    digests = {digest for _, digest in references if digest is not None}
    asked = select_items(session, names | plain | digests | {*in_folders.values()})
    runs = {run_id: run_id for run_id in session.scalars(select(RunRow.id).where(RunRow.id.in_(asked)))}
    runs |= {name: run_id for name, run_id in in_folders.items() if run_id in runs}
    recorded = func.substr(ModelRow.digest, 1, RECORDED_DIGITS)
    of_digests = [recorded.in_(asked)] if digests else []  # which reads all models
    is_asked = or_(ModelRow.name.in_(asked), ModelRow.folder.in_(asked), *of_digests)
    columns = ModelRow.run_id, ModelRow.name, ModelRow.version, ModelRow.folder, recorded
    of_name: dict[str, tuple[str | None, str | None]] = {}
    of_digest: dict[str | None, str] = {}
    for maker, name, version, folder, digest in session.execute(
        select(*columns).where(is_asked, ModelRow.run_id.is_not(None))
    ):
        of_digest[digest] = str(maker)
        of_name |= dict.fromkeys((f"{name}@{version}", folder), (digest, maker))
    makers: dict[_Reference, str] = {}
    for name, meant in references:
        digest, named = of_name.get(name, (meant, runs.get(name)))
        is_meant = named is not None and meant in (None, digest)
        if maker := named if is_meant else of_digest.get(meant):
            makers[name, meant] = maker
    kept = load_kept_trials(session, {*makers.values()})
    return {reference: kept.get(maker, maker) for reference, maker in makers.items()}


def _run_of_path(name: str) -> str | None:
    """Id of the run or trial in whose folder a path lies; None of a path that lies elsewhere, and of other names."""
    found = _IN_RUN_FOLDER.search(name)
    if found is None:
        return None
    run_id, key = found.groups()
    return str(run_id) if key is None else trial_id(run_id, key)


def _load_corpus_files(session: Session, run_ids: Collection[str]) -> Mapping[str, frozenset[str]]:
    """Digests of the files of the corpora that runs read, by run; their text was read, whatever labels they have."""
    if not run_ids:
        return {}
    of_run = DatasetRow.fingerprint == RunDatasetRow.fingerprint
    corpora = select(RunDatasetRow.run_id, DatasetRow.files).join(DatasetRow, of_run)
    is_read = DatasetRow.kind == "corpus", RunDatasetRow.run_id.in_(select_runs(session, run_ids))
    read: dict[str, frozenset[str]] = defaultdict(frozenset)
    for run_id, files in session.execute(corpora.where(*is_read)):
        read[run_id] |= {file["digest"][:RECORDED_DIGITS] for file in files if file.get("digest")}
    return read


def load_parameters_of(
    session: Session, run_ids: Collection[str], paths: Iterable[str] = (), *, without: Iterable[str] = ()
) -> dict[str, dict[str, Any]]:
    """Load the parameters of several runs, by run and dotted path; a run without any has none.

    Args:
        paths: parameters that are asked for; all when empty.
        without: parameters that are left out.
    """
    if not run_ids:
        return {}
    stored = json_object(session, name_of_key(ParameterRow.path), ParameterRow.kind + KIND_END + ParameterRow.text)
    of_run = select(ParameterRow.run_id, stored).where(ParameterRow.run_id.in_(select_runs(session, run_ids)))
    named = select(NameRow.key).where(NameRow.text.in_(paths or without))
    asked = of_run.where(ParameterRow.path.in_(named) if paths else ParameterRow.path.not_in(named))
    parameters: dict[str, dict[str, Any]] = {run_id: {} for run_id in run_ids}
    for run_id, own in session.connection().execute(asked.group_by(ParameterRow.run_id)).all():
        parameters[run_id] = {path: _decode(value) for path, value in own.items()}
    return parameters


_decode = lru_cache(maxsize=10_000)(decode_stored)
"""A few values stand in most recipes, and each is decoded once."""
