"""Data that models were trained and chosen on: a score on the same data flatters, and on test data it is refused.

A split's data are known by digests of the examples that a run took, of the whole split, and of the file. Models are
followed from the names in runs' parameters to the runs that made them, and on to the first.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cache, lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from sqlalchemy import Connection, func, or_, select

from orchestrator.registry.dialects import select_items, select_runs
from orchestrator.registry.parameters import (
    DATA,
    FILE_DIGEST,
    RECORDED_DIGITS,
    START,
    TAKEN_DIGEST,
    WHOLE_DIGEST,
    ids_of_path,
)
from orchestrator.registry.records import load_kept_trials, load_parameters_of
from orchestrator.registry.registered_models import split_version
from orchestrator.registry.tables import DATASETS, LINEAGE, MODELS, NAMES, RUN_DATASETS, RUNS, SERIES

if TYPE_CHECKING:
    from orchestrator.base.results import Split

Parameters = Mapping[str, Any]


class SplitData(NamedTuple):
    """Digests of the data of one split; None where they were not recorded."""

    taken: str | None = None
    """Digest of the examples that were used: of the file, of how it was read, and of the limit."""
    whole: str | None = None
    """The same digest without the limit."""
    file: str | None = None
    """Digest of the file's content, however it was read."""

    @classmethod
    def of(cls, parameters: Parameters, split: "Split") -> Self:
        """Data of a split by the parameters of a run. Where no whole was recorded, the examples are taken for it."""
        taken, whole, file = map(parameters.get, _paths(split))
        return cls(taken, taken if whole is None else whole, file)


@cache
def _paths(split: "Split") -> tuple[str, ...]:
    return tuple(f"data.{split}{end}" for end in (TAKEN_DIGEST, WHOLE_DIGEST, FILE_DIGEST))


_MODEL, _MODEL_DIGEST = "model", "data.model_digest"
NAME_PATHS = frozenset(
    (_MODEL, "rerank", "teacher", "init_from", "recipe.init_from", START, "pretraining.init_from", "run")
)
"""Paths of the parameters that name models: those that an evaluation scores, and those that a model is made of."""
_MAKING_PATHS = (*NAME_PATHS, _MODEL_DIGEST, *_paths("train"), *_paths("validation"))
"""Paths of the parameters by which it is known what a run's model was made of, and with which data."""

Origin = str
"""Earlier use of the data of a score: `trained` or `chosen` on them; before the word `partly`, where on some of them at
least; after it `earlier`, where a start model or teacher was. `same file`: on their file, perhaps read into other
examples. `apart`: nothing of this is known, and the model was chosen on other data."""
_SAME_FILE, _APART, _EARLIER = "same file", "apart", " earlier"
_USES: "Mapping[str, Split]" = {"trained": "train", "chosen": "validation"}


def origin_sentence(origin: Origin | None, model: str, data: str) -> str:
    """Sentence on the earlier use of data.

    >>> origin_sentence("partly chosen earlier", "its model", "these data")
    'its model was made of one that was chosen on at least some of these data'
    """
    if origin is None:
        return f"it is not known on which data {model} was chosen"
    if origin == _APART:
        return f"{model} was chosen on other data"
    if origin == _SAME_FILE:
        how = "was trained or chosen on the same file, read another way"
        return f"{model}, or one that it was made of, {how}: whether on {data} is not known"
    made = "made of one that was " if origin.endswith(_EARLIER) else ""
    some = "at least some of " if origin.startswith("partly ") else ""
    return f"{model} was {made}{origin.removeprefix('partly ').removesuffix(_EARLIER)} on {some}{data}"


Used = frozenset[tuple[str, str, str]]
"""Data that a model was made with: the use (`trained` or `chosen`, of a model that it was made of with `earlier`), the
kind of digest as `SplitData` has it, and the digest. Data of which it is not known what was taken are left out."""


def data_used(parameters: Parameters) -> Used:
    """Data that a run trains and chooses its model on, by its parameters."""
    return _used(*(SplitData.of(parameters, split) for split in _USES.values()))


@lru_cache  # as of `use_of`, a board of many groups asks for the same few again and again
def _used(*splits: SplitData) -> Used:
    return frozenset(
        (use, kind, digest)
        for use, one in zip(_USES, splits, strict=True)
        for kind, digest in one._asdict().items()
        if one.taken is not None and digest is not None
    )


@lru_cache
def use_of(used: Used, data: SplitData) -> Origin | None:
    """Use that was made of the data of a score, the gravest that is certain; None where it is not known.

    A limit takes the first examples (`max_train_examples`): two parts of one whole share the first example at least.

    >>> part = frozenset([("trained", "taken", "first 100"), ("trained", "whole", "w"), ("trained", "file", "f")])
    >>> [use_of(part, SplitData(taken, "w", "f")) for taken in ("first 100", "w")]
    ['trained', 'partly trained']
    >>> use_of(part, SplitData("otherwise", "otherwise", "f")), use_of(part, SplitData("x", "x", "x"))
    ('same file', None)
    """
    if data.taken is None:
        return None
    parts = (("", {("taken", data.taken), ("taken", data.whole)}), ("partly ", {("whole", data.whole)}))
    for use, (part, digests), when in product(_USES, parts, ("", _EARLIER)):
        if any((use + when, *digest) in used for digest in digests):
            return f"{part}{use}{when}"
    if any(one[1:] == ("file", data.file) for one in used):
        return _SAME_FILE
    return _APART if any(use == "chosen" for use, _, _ in used) else None


def sentence_on_use(connection: Connection, model: str, data: Mapping[str, str], split: "Split") -> str | None:
    """Sentence on the use of data, as `Registry.earlier_use` describes it."""
    parameters = {_MODEL: model} | {f"{DATA}{name}{TAKEN_DIGEST}": digest for name, digest in data.items()}
    ((_, used),) = load_origins(connection, {"": parameters}).items()
    use = use_of(used, SplitData.of(parameters, split))
    return None if use in (None, _APART) else origin_sentence(use, "the model", "these data")


def load_test_refusals(connection: Connection, run_ids: Collection[str]) -> dict[str, str]:
    """Reason for each of these runs, trials and evaluations whose score on the test split is refused, by its id.

    A file that was read another way may have given other examples, and refuses nothing.
    """
    of_tests = select(NAMES.c.key).where(NAMES.c.text.startswith("test."))
    is_tested = SERIES.c.run_id.in_(select_runs(run_ids)), SERIES.c.name.in_(of_tests)
    scored = connection.scalars(select(SERIES.c.run_id).where(*is_tested).distinct()).all()
    kept = load_kept_trials(connection, scored)  # the score of a sweep is that of the trial whose model it kept
    texts = load_parameters_of(connection, {*scored, *kept.values()}, (*_MAKING_PATHS, *_paths("test")))
    made_with = {run_id: texts[run_id] | texts.get(kept.get(run_id, ""), {}) for run_id in scored}
    refusals = {}
    for run_id, used in load_origins(connection, made_with).items():
        use = use_of(used, SplitData.of(made_with[run_id], "test"))
        if use not in (None, _APART, _SAME_FILE):
            refusals[run_id] = origin_sentence(use, "the model", "the test data")
    return refusals


def load_origins(connection: Connection, runs: Mapping[str, Parameters]) -> dict[str, Used]:
    """Data that the model of each run was trained and chosen on, and earlier those of all models that it was made of.

    `runs` are parameters of each run. One that names a `model` is an evaluation: it made none, its model is that one.
    """
    makers: dict[str, set[str]] = {}  # of the models that a run names, as far as they are known here
    made: dict[str, Used] = {}
    unread = runs
    while unread:
        named = _load_references(connection, unread)
        found = _load_makers(connection, set().union(*named.values()))
        makers |= {run_id: {found[one] for one in own if one in found} for run_id, own in named.items()}
        unread = load_parameters_of(connection, {*found.values()} - made.keys(), _MAKING_PATHS)
        texts = _load_texts(connection, unread) if unread else {}
        made |= {run_id: data_used(own) | texts.get(run_id, frozenset()) for run_id, own in unread.items()}

    @cache
    def with_earlier(used: Used, nearest: frozenset[str]) -> Used:
        """Add what the makers of start models and teachers, and of theirs, used."""
        ancestors = nearest
        while nearest := nearest.union(*(makers[maker] for maker in nearest)) - ancestors:
            ancestors |= nearest
        earlier = Used().union(*(made[ancestor] for ancestor in ancestors))
        return used | {(use + _EARLIER, kind, digest) for use, kind, digest in earlier}

    origins = {}
    for run_id, own in runs.items():
        used, nearest = data_used(own), frozenset(makers[run_id])
        if _MODEL in own:
            used = Used().union(*(made[maker] for maker in nearest))
            nearest = frozenset().union(*(makers[maker] for maker in nearest))
        origins[run_id] = with_earlier(used, nearest)
    return origins


def _load_texts(connection: Connection, run_ids: Collection[str]) -> dict[str, Used]:
    """Files of text that runs trained their models on, by run, whatever labels they have."""
    of_run = DATASETS.c.fingerprint == RUN_DATASETS.c.fingerprint
    corpora = select(RUN_DATASETS.c.run_id, DATASETS.c.files).join(DATASETS, of_run).where(DATASETS.c.kind == "corpus")
    read: dict[str, Used] = defaultdict(frozenset)
    for run_id, files in connection.execute(corpora.where(RUN_DATASETS.c.run_id.in_(select_runs(run_ids)))):
        read[run_id] |= {("trained", "file", file["digest"][:RECORDED_DIGITS]) for file in files if file.get("digest")}
    return read


_Reference = tuple[str, str | None]
"""Name of a model in a run, and the digest of the weights that it meant then, None where that was not recorded."""


def _load_references(connection: Connection, runs: Mapping[str, Parameters]) -> dict[str, set[_Reference]]:
    """Models that runs name in their parameters, by run; a name means the weights that the run's lineage has recorded.

    The lineage of a trial is its sweep's, which has the start model of the trial whose model it kept.
    """
    named = {
        run_id: {name for path in NAME_PATHS & own.keys() if isinstance(name := own[path], str) and name != "random"}
        for run_id, own in runs.items()
    }
    meant: dict[tuple[str, str], str | None] = {}
    if asked := [run_id for run_id, names in named.items() if any("@" in name for name in names)]:
        of_run = LINEAGE.c.run_id == func.coalesce(RUNS.c.parent_id, RUNS.c.key)
        edges = select(RUNS.c.id, LINEAGE.c.parent_name, LINEAGE.c.parent).join(LINEAGE, of_run)
        is_asked = RUNS.c.id.in_(select_items(asked)), LINEAGE.c.role.in_(("weights", "teacher"))
        for run_id, name, digest in connection.execute(edges.where(*is_asked)):
            meant[run_id, name] = digest[:RECORDED_DIGITS]
    meant |= {(run_id, str(own[_MODEL])): own.get(_MODEL_DIGEST) for run_id, own in runs.items() if _MODEL in own}
    return {run_id: {(name, meant.get((run_id, name))) for name in names} for run_id, names in named.items()}


def _load_makers(connection: Connection, references: Collection[_Reference]) -> dict[_Reference, str]:
    """Id of the run that made a model, by how it is named: by its label, folder or run, or a path in the run's folder.

    The maker of a sweep's model is the trial that it kept.
    """
    if not references:
        return {}
    run_ids = {name: [name, *ids_of_path(name)][-1] for name, _ in references}
    digests = {digest for _, digest in references if digest is not None}
    labels = {split_version(name)[0] for name in run_ids}
    asked = select_items({*run_ids, *digests, *run_ids.values(), *labels})
    recorded = {*connection.scalars(select(RUNS.c.id).where(RUNS.c.id.in_(asked)))}
    model, digest = MODELS.c, func.substr(MODELS.c.digest, 1, RECORDED_DIGITS)
    of_digests = [digest.in_(asked)] if digests else []  # which reads all models
    are_asked = or_(model.name.in_(asked), model.folder.in_(asked), *of_digests), model.run_id.is_not(None)
    of_name: dict[str, tuple[str | None, str]] = {}
    of_digest: dict[str | None, str] = {}
    columns = select(model.run_id, model.name, model.version, model.folder, digest)
    for maker, name, version, folder, weights in connection.execute(columns.where(*are_asked)):
        of_digest[weights] = maker
        of_name |= dict.fromkeys((f"{name}@{version}", folder), (weights, maker))
    makers: dict[_Reference, str] = {}
    for name, meant in references:
        weights, named = of_name.get(name, (meant, run_ids[name]))
        is_meant = meant in (None, weights) and (name in of_name or named in recorded)
        if maker := named if is_meant else of_digest.get(meant):
            makers[name, meant] = maker
    kept = load_kept_trials(connection, {*makers.values()})
    return {reference: kept.get(maker, maker) for reference, maker in makers.items()}
