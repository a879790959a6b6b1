"""Loading of specs: from a YAML file and overrides to a validated spec.

`extends: other.yaml` (relative to the file that says so) takes another spec as the base, of a whole file or of a stage.
Then, and for overrides, mappings are merged and anything else is replaced; an axis of `space` is replaced whole, and
`null` leaves it out, as it does a variant of a stage and a label of `node_labels`.
Paths inside a spec stay as written; relative ones are meant from the current directory, wherever the spec lies.
"""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.base.errors import SpecError
from orchestrator.base.nearest import similar_file
from orchestrator.specs.fields import Spec
from orchestrator.specs.references import NAME_FIELDS, STAGE_MARK, join_starts
from orchestrator.specs.validation import dotted, place_of, shown, validate_document, value_at
from orchestrator.specs.yaml_text import KeyPath, SourceLocation, YamlDocument, parse_value, read_document

if TYPE_CHECKING:
    from orchestrator.specs.pipeline import AnySpec
    from orchestrator.specs.task import TaskSpec

_SPECS = "*.y*ml"
_DATA = (".csv", ".tsv", ".jsonl", ".parquet", ".txt")
Overrides = Sequence[str] | Mapping[str, Any]
"""`KEY=VALUE` texts with dotted keys and YAML values, or a mapping of dotted keys."""
Places = dict[KeyPath, SourceLocation]


def load_spec(path: str | Path, overrides: Overrides = ()) -> "AnySpec":
    """Load the spec in a file and apply overrides.

    Raises: SpecError, naming file, line, field, value and what is allowed.
    """
    document = _read_with_bases(Path(path), ())
    for key, value, place in parse_overrides(overrides):
        apply_override(document, key, value, place)
    unfold_variants(document)
    _drop_axes_left_out(document.values)
    spec = validate_document(document)
    return spec.named(Path(path).stem)


def load_task_spec(task: str, overrides: Sequence[str] = (), own_values: Mapping[str, Any] | None = None) -> "TaskSpec":
    """The task of a spec file, or one by its id; overrides are `KEY=VALUE`, `task.` before KEY or not.

    A pipeline's is the one task that its stages have.

    Args:
        own_values: values of the task, where it is neither a spec file's nor known by its id alone.

    Raises: SpecError.
    """
    from orchestrator.specs.task import task_of

    values = dict(own_values or {"id": task})
    base: dict[str, Any] = {"kind": "evaluate", "model": "-"}
    if task.endswith((".yaml", ".yml")):
        spec = load_spec(task)
        tasks = [found for stage in spec.stage_specs().values() if (found := task_of(stage)) is not None]
        if not tasks or any(other != tasks[0] for other in tasks):
            raise SpecError(
                f"{task} is a spec of kind {spec.kind}, which has no task, or several; give one of kind sweep or "
                "evaluate"
            )
        values, base = tasks[0].model_dump(mode="json"), {"kind": "sweep", "recipe": {"init_from": "-"}}
    document = YamlDocument({**base, "task": values}, {})
    for key, value, place in parse_overrides(overrides):
        apply_override(document, f"task.{key.removeprefix('task.')}", value, place)
    found_task = task_of(validate_document(document))
    assert found_task is not None
    return found_task


def parse_spec(values: Mapping[str, Any]) -> "AnySpec":
    """The spec that plain values describe, such as `spec_values` gives. Raises: SpecError."""
    return validate_document(YamlDocument(dict(values), {}))


def spec_values(spec: Spec) -> dict[str, Any]:
    """A spec as plain JSON values; `parse_spec` makes an equal spec of them."""
    return spec.model_dump(mode="json")


def read_values(path: str | Path) -> dict[str, Any]:
    """Plain values of a spec file and of the specs that it extends, unchecked. Raises: SpecError."""
    return _read_with_bases(Path(path), ()).values


def _read_with_bases(path: Path, above: tuple[Path, ...]) -> YamlDocument:
    resolved = path.resolve()
    if resolved in above:
        circle = " → ".join(str(step.name) for step in (*above, resolved))
        raise SpecError(f"{path}: `extends` goes in a circle: {circle}")
    if not path.is_file():
        raise SpecError(f"no spec at {path}{similar_file(path, _SPECS)}")
    if path.suffix in _DATA:
        raise SpecError(f"{path} is data by its name; to draft a spec of it: orchestrator init {path}")
    document = read_document(path)
    stages = document.values.get("stages")
    for stage in stages if isinstance(stages, dict) else ():
        _lay_over_base(document, ("stages", stage), path, (*above, resolved))
    _lay_over_base(document, (), path, (*above, resolved))
    return document


def _lay_over_base(document: YamlDocument, at: KeyPath, path: Path, above: tuple[Path, ...]) -> None:
    """Lay the mapping at a place of the document over the values of the spec that it `extends`, if it does."""
    part = value_at(document.values, at)
    if not isinstance(part, dict) or "extends" not in part:
        return
    base_name = part.pop("extends")
    place = place_of((*at, "extends"), document.places)
    if not isinstance(base_name, str):
        raise SpecError(f"{place}: extends is {shown(base_name)}; it must be the file name of another spec")
    base_path = path.parent / base_name
    if not base_path.is_file():
        raise SpecError(f"{place}: extends names {base_path}, which is no file{similar_file(base_path, _SPECS)}")
    base = _read_with_bases(base_path, above)
    merge(base.values, part, at)
    part.clear()
    part.update(base.values)
    for key, written in base.places.items():
        document.places.setdefault((*at, *key), written)


def _drop_axes_left_out(values: dict[str, Any]) -> None:
    stages = values.get("stages")
    for part in (values, *(stages.values() if isinstance(stages, dict) else ())):
        space = part.get("space") if isinstance(part, dict) else None
        if isinstance(space, dict):
            part["space"] = {name: axis for name, axis in space.items() if axis is not None}


def parse_overrides(overrides: Overrides) -> list[tuple[str, Any, SourceLocation]]:
    """Split overrides into dotted keys and values, each with the place that messages name. Raises: SpecError."""
    if isinstance(overrides, Mapping):
        return [(key, value, SourceLocation(f"override {key}")) for key, value in overrides.items()]
    parsed = []
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise SpecError(f"override {text!r} is not KEY=VALUE, such as recipe.learning_rate=3e-5")
        parsed.append((key.strip(), parse_value(value, f"override {text}"), SourceLocation(f"override {text}")))
    return parsed


def override_words(overrides: Overrides) -> list[str]:
    """Return overrides as KEY=VALUE words, as a person would type them.

    >>> override_words({"trials": 4, "recipe.seed": None}), override_words(["trials=4"])
    (['trials=4', 'recipe.seed=null'], ['trials=4'])
    """
    if not isinstance(overrides, Mapping):
        return list(overrides)
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in overrides.items()]


def apply_override(document: YamlDocument, key: str, value: Any, place: SourceLocation, below: KeyPath = ()) -> None:
    """Set the value of one dotted key below a mapping of the document; missing mappings on its way are made.

    Raises: SpecError.
    """
    path, target = below, value_at(document.values, below)
    parts = key.split(".")
    for part in parts[:-1]:
        step = _step(target, part, dotted((*path, part)), place)
        path = (*path, step)
        if isinstance(target, dict) and target.get(step) is None:
            target[step] = {}
            document.places[path] = place
        target = target[step]
    last = _step(target, parts[-1], dotted((*below, key)), place)
    if isinstance(target, dict):
        merge(target, {str(last): value}, path)
    else:
        target[last] = value
    document.places[(*path, last)] = place


def merge(base: dict[str, Any], update: Mapping[str, Any], path: KeyPath) -> None:
    """Merge values into the mapping at a path; `null` removes a variant or a label of nodes."""
    whole, leaves_out = path[-1:] == ("space",), path[-1:] in (("variants",), ("node_labels",))
    for key, value in update.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict) and not whole:
            merge(base[key], value, (*path, key))
        elif value is None and key in base and leaves_out:
            del base[key]
        else:
            base[key] = value


def _step(target: Any, part: str, key: str, place: SourceLocation) -> str | int:
    if isinstance(target, dict) and part:
        return part
    if isinstance(target, list):
        if part.isdecimal() and int(part) < len(target):
            return int(part)
        raise SpecError(f"{place}: {key}: the list has entries 0 to {len(target) - 1}")
    if not part:
        raise SpecError(f"{place}: the key has an empty part; write it like recipe.learning_rate")
    raise SpecError(f"{place}: {key}: there is nothing below a value that is {shown(target)}")


def unfold_variants(document: YamlDocument) -> None:
    """Put the variants of a document's stages in these stages' places, and then those of a pretraining for its `seeds`.

    A list of names has all variants in the place of `@stage`; the `init_from` of a sweep joins the seeds of one.
    Raises: SpecError, naming the variant.
    """
    if not isinstance(document.values.get("stages"), dict):
        return
    variants = _unfold(document)
    _vary_seeds(document)
    seeds = _unfold(document)

    def unfold(value: Any, field: str, path: KeyPath) -> Any:
        if isinstance(value, dict):
            return {key: unfold(item, field if key == "choice" else key, (*path, key)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            is_name = [field in NAME_FIELDS and isinstance(item, str) for item in value]
            named = [variants.get(item, [item]) if name else [item] for item, name in zip(value, is_name, strict=True)]
            return [unfold(item, field, path) for item in chain.from_iterable(named)]
        if field not in NAME_FIELDS or not isinstance(value, str) or value not in variants.keys() | seeds.keys():
            return value
        if value in seeds and field == "init_from" and document.values["stages"][path[1]].get("kind") == "sweep":
            return join_starts(seeds[value])
        which = "has a model for each seed" if value in seeds else "has variants"
        where = "make it the init_from of a sweep" if value in seeds else "list it in `space`"
        raise SpecError(
            f"{place_of(path, document.places)}: {dotted(path)} is {shown(value)}, which {which}; name one "
            f"({', '.join((variants | seeds)[value])}), or {where}"
        )

    document.values["stages"] = unfold(document.values["stages"], "", ("stages",))


def _vary_seeds(document: YamlDocument) -> None:
    """Make variants of the `seeds` of pretrainings; one that starts from another with these seeds does so seed by seed.

    Raises: SpecError.
    """
    seeds_of: dict[str, list[int]] = {}
    for stage, part in document.values["stages"].items():
        if not isinstance(part, dict) or part.get("kind") != "pretrain" or "seeds" not in part:
            continue
        seeds, start, at = part.pop("seeds"), part.get("init_from"), ("stages", stage, "seeds")
        are_numbers = isinstance(seeds, list) and all(type(seed) is int for seed in seeds)
        if not are_numbers or not seeds or len(set(seeds)) < len(seeds):
            place = place_of(at, document.places)
            raise SpecError(f"{place}: {dotted(at)} is {shown(seeds)}; it must be a list of different whole numbers")
        part["variants"] = {str(seed): {"seed": seed} for seed in seeds}
        for seed in set(seeds) & set(seeds_of.get(str(start), ())):
            part["variants"][str(seed)]["init_from"] = f"{start}.{seed}"
        seeds_of[STAGE_MARK + stage] = seeds


def _unfold(document: YamlDocument) -> dict[str, list[str]]:
    """Put variants in the places of their stages; returns `@stage.variant` for each of them, by `@stage`."""
    written, stages = document.values["stages"], dict[str, Any]()
    document.values["stages"] = stages
    members: dict[str, list[str]] = {}
    for stage, part in written.items():
        if not isinstance(part, dict) or "variants" not in part:
            stages[stage] = part
            continue
        at = ("stages", stage, "variants")
        for variant in _mapping(part["variants"], at, document.places, "of names to mappings of fields"):
            name, place = f"{stage}.{variant}", place_of((*at, variant), document.places)
            if not variant or "." in str(variant):
                raise SpecError(
                    f"{place}: {dotted(at)} has {shown(variant)}, which is no name; give the variant one without dots"
                )
            if name in written:
                raise SpecError(f"{place}: a stage {name} is there already; give the variant another name")
            stages[name] = deepcopy(part)
            _vary(document, stage, variant)
            members.setdefault(STAGE_MARK + stage, []).append(STAGE_MARK + name)
    return members


def _vary(document: YamlDocument, stage: str, variant: str) -> None:
    """Make a variant of the copy of its stage that stands in its place."""
    name, places = f"{stage}.{variant}", document.places
    part, written, here = document.values["stages"][name], ("stages", stage, "variants", variant), ("stages", name)
    fields = _mapping(part.pop("variants")[variant], written, places, "of fields; {} changes none", empty=True)
    for above in (("stages", stage), written):
        places |= {(*here, *path[len(above) :]): place for path, place in places.items() if path[: len(above)] == above}
    if part.get("name"):
        part["name"] = f"{part['name']}.{variant}"
    for key, value in fields.items():
        apply_override(document, key, value, place_of((*written, key), places), here)


def _mapping(value: Any, path: KeyPath, places: Places, what: str, *, empty: bool = False) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not (value or empty):
        raise SpecError(f"{place_of(path, places)}: {dotted(path)} is {shown(value)}; it must be a mapping {what}")
    return value
