"""Parameters: values of a spec by dotted path, with their types, as rows, and digests of them all."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from math import isfinite, isnan
from typing import Any

from sqlalchemy import Connection, bindparam, select

from orchestrator.registry.connections import Prepared, WriteTransaction
from orchestrator.registry.dialects import RUN_KEY, replace_unstorable, select_list
from orchestrator.registry.tables import NAMES, PARAMETERS

DATA, RECIPE, TASK = "data.", "recipe.", "task."
"""Beginnings of the paths of parameters: digests of the data of a run, its recipe, its task."""
START = "recipe.start"
"""Parameter with the model that a trial starts from where each seed has one of its own; `init_from` names them all."""
_IN_RUN_FOLDER = re.compile(r"(?:^|/)runs/([0-9a-f]{12})(?:/trials/([0-9a-f]{16}))?(?=/|$)")
"""Path in the folder of a run, which is called by the run's id, or in that of a trial, by its key."""
_DATA_PLACES = ("task.files", "task.folder")
"""Parameters that say where data lie, not what they are."""
TAKEN_DIGEST, WHOLE_DIGEST, FILE_DIGEST = "_digest", "_whole_digest", "_file_digest"
"""Ends of the paths of a split's digests: of the examples that a run took, of all without its limit, of the file."""
RECORDED_DIGITS = 16
"""Digits of a digest of data, or of a model's weights, that the parameters of runs have."""
LABEL_DIGITS = 8
"""Digits of a group's digest that lists show, without those of the code."""
LARGEST_EXACT = 2**53
"""Whole number from which on a double may be another one than was written."""


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested sections into dotted paths; a list of sections gets numbers as path parts.

    >>> flatten({"recipe": {"seed": 0}, "phases": [{"share": 1.0}], "tags": ["a", "b"]})
    {'recipe.seed': 0, 'phases.0.share': 1.0, 'tags': ['a', 'b']}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{path}.")
        elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
            flat |= flatten({str(index): item for index, item in enumerate(value)}, f"{path}.")
        else:
            flat[path] = list(value) if isinstance(value, tuple) else value
    return flat


def encode_parameter(value: Any) -> tuple[str, str, float | None]:
    """Encode a value as kind, text and number, the columns of the parameters table in their order.

    >>> encode_parameter(5e-05), encode_parameter(True), encode_parameter("tiny")
    (('number', '5e-05', 5e-05), ('boolean', 'true', 1.0), ('text', 'tiny', None))
    """
    if value is None:
        return "null", "null", None
    if isinstance(value, bool):
        return "boolean", json.dumps(value), float(value)
    if isinstance(value, int | float):
        number = float(value)
        plain = int.__repr__ if isinstance(value, int) else float.__repr__  # what JSON writes, sooner
        text = plain(value) if isfinite(number) else json.dumps(number)
        return "number", text, None if isnan(number) else number
    if isinstance(value, str):
        return "text", replace_unstorable(value), None
    return "json", json.dumps(value, default=str), None


def decode_parameter(kind: str, text: str) -> Any:
    """Decode a value from its kind and text, as `encode_parameter` wrote them."""
    if kind == "number":
        return _decode_number(text)
    return text if kind == "text" else json.loads(text)


_decode_number = lru_cache(maxsize=10_000)(json.loads)  # the same few, for each trial of a sweep


def is_source_digest(path: str) -> bool:
    """Whether a parameter tells what a split's examples were taken from: runs with the same examples do not differ."""
    return path.startswith(DATA) and path.endswith((WHOLE_DIGEST, FILE_DIGEST))


def group_digest(parameters: Mapping[str, Any]) -> str:
    """Digest of parameters without seed and fold: 16 hexadecimal digits, equal for trials that differ in these alone.

    Where digests of the data are recorded, these count, and no paths. The data of a test count for evaluations alone,
    which are scored on nothing else.
    """
    ignored = (START,) if parameters.get("kind") == "evaluate" else (START, "data.test_digest")
    places = _DATA_PLACES if any(path.startswith(DATA) for path in parameters) else ()
    return digest(
        {
            path: float(value) if isinstance(value, int) and not isinstance(value, bool) else value
            for path, value in parameters.items()
            if path.rpartition(".")[2] not in ("seed", "seeds", "fold")
            and path not in ignored
            and not path.startswith(places)
            and not is_source_digest(path)
        }
    )


def run_group_digest(kind: str, parameters: Mapping[str, Any]) -> str:
    """Digest of a run's parameters without its seed and without how it was carried out (`execution`)."""
    return group_digest(
        {"kind": kind} | {path: value for path, value in parameters.items() if "execution" not in path.split(".")}
    )


def told_task_fields(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a task that a trial is told of: those that were given and change what is learned or scored.

    Its id and score have columns of their own, and its data have digests.
    """
    defaults = _task_defaults()
    fields = {path: value for path, value in parameters.items() if path.startswith(TASK)}
    apart = {path for path in fields if path in ("task.id", "task.metric") or path.startswith(_DATA_PLACES)}
    return {path: value for path, value in fields.items() if path not in apart and value != defaults.get(path)}


@cache
def _task_defaults() -> dict[str, Any]:
    from orchestrator.specs.task import TaskSpec

    fields = TaskSpec.model_fields.items()
    return flatten({"task": {name: field.get_default(call_default_factory=True) for name, field in fields}})


def digest(value: Any) -> str:
    """Digest of plain values: the first 16 hexadecimal digits of SHA-256 over them as JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(replace_unstorable(text).encode()).hexdigest()[:16]


@lru_cache(maxsize=10_000)
def trial_id(sweep_id: str, key: str) -> str:
    """Id of a trial: the same whenever it is recorded, and by whichever process."""
    return digest([sweep_id, key])[:12]


def ids_of_path(path: str) -> list[str]:
    """Id of the run in whose folder a path lies, then that of its trial, where it is in one's; none of another name.

    So a relative path of a spec is known from wherever it is looked at.
    """
    found = _IN_RUN_FOLDER.search(path)
    return [] if found is None else [found[1], *([trial_id(found[1], found[2])] if found[2] else [])]


def group_key(recipe_digest: str, code_version: str | None) -> str:
    """Key of the group of runs with this digest of all but the code, and of this code."""
    return recipe_digest if code_version is None else f"{recipe_digest}.{code_digest(code_version)}"


@lru_cache
def code_digest(code_version: str) -> str:
    """Digest of a version of the code, as the keys of groups have it."""
    return hashlib.sha256(code_version.encode()).hexdigest()[:8]


def group_code(key: str) -> str:
    """Digest of the code in a group's key; empty where it is not known."""
    return key.partition(".")[2]


def group_label(key: str) -> str:
    """Short form of a group's key.

    >>> group_label("3f2a77c0b1d2e3f4.1a2b3c4d"), group_label("3f2a77c0b1d2e3f4")
    ('3f2a77c0.1a2b3c4d', '3f2a77c0')
    """
    recipe, dot, code = key.partition(".")
    return f"{recipe[:LABEL_DIGITS]}{dot}{code}"


def varying_paths(recipes: Sequence[Mapping[str, Any]]) -> set[str]:
    """Paths whose values differ between recipes; a path that a recipe lacks counts as None.

    Digests of what data were taken from are left out: those of the examples tell more.

    >>> sorted(varying_paths([{"size": "tiny", "epochs": 3}, {"size": "mini", "epochs": 3.0}, {"epochs": 3}]))
    ['size']
    """
    paths = {path for recipe in recipes for path in recipe if not is_source_digest(path)}
    return {path for path in paths if any(recipe.get(path) != recipes[0].get(path) for recipe in recipes)}


def varied_parameters(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The `params.…` columns in which rows differ, sorted, without those that tell no recipes apart, as the seed."""
    recipes = [{name: value for name, value in row.items() if name.startswith("params.")} for row in rows]
    return sorted(name for name in varying_paths(recipes) if name not in ("params.seed", "params.fold", "params.start"))


def write_parameters(transaction: WriteTransaction, parameters: Mapping[int, Mapping[str, Any]]) -> None:
    """Write parameters of runs, by the run's key, in place of those at the same paths."""
    named = [(key, replace_unstorable(path), value) for key, own in parameters.items() for path, value in own.items()]
    keys = name_keys(transaction, (path for _, path, _ in named))
    rows = [(keys[path], key, *encode_parameter(value)) for key, path, value in named]
    transaction.upsert(PARAMETERS, [*zip(*rows, strict=True)], ("path", "run_id"), ("kind", "text", "number"))


def read_parameters(transaction: WriteTransaction, run_id: str) -> dict[str, Any]:
    """Read the parameters of a run by dotted path."""
    rows = transaction.read(_parameters_statement(transaction.dialect), {"run_id": run_id})
    return {path: decode_parameter(kind, text) for path, kind, text in rows}


def load_parameters(connection: Connection, run_id: str) -> dict[str, Any]:
    """Load the parameters of a run by dotted path."""
    return read_parameters(WriteTransaction.within(connection), run_id)


@lru_cache
def _parameters_statement(dialect: str) -> Prepared:
    columns = select(NAMES.c.text, PARAMETERS.c.kind, PARAMETERS.c.text).join(NAMES, NAMES.c.key == PARAMETERS.c.path)
    of_run = columns.where(PARAMETERS.c.run_id == bindparam("run_id", type_=RUN_KEY))
    return Prepared(of_run.order_by(NAMES.c.text), dialect, ["run_id"])


def name_keys(transaction: WriteTransaction, texts: Iterable[str]) -> dict[str, int]:
    """Keys of names, which are made where they are not there yet."""
    keys, new = transaction.keys, transaction.new_keys
    wanted = dict.fromkeys(texts)
    missing = sorted(text for text in wanted if text not in keys and text not in new)  # in one order, against deadlocks
    if missing:
        statement = _find_statement(transaction.dialect)
        new.update(transaction.read(statement, {"texts": missing}))
        if unknown := [text for text in missing if text not in new]:
            transaction.upsert(NAMES, [unknown], ("text",))
            new.update(transaction.read(statement, {"texts": unknown}))
    return {text: keys.get(text) or new[text] for text in wanted}


@lru_cache
def _find_statement(dialect: str) -> Prepared:
    named = select(NAMES.c.text, NAMES.c.key).where(NAMES.c.text.in_(select_list("texts")))
    return Prepared(named, dialect, ["texts"])
