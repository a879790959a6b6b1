"""Variants of a pipeline's stage, unfolded into a stage each before anything else looks at the spec.

    encoder: {extends: pretrain.yaml, variants: {tokens: {}, words: {mask_unit: word}}}

is the stages `encoder.tokens` and `encoder.words`. A variant's fields are overrides of all else that the stage says, so
they win; `@encoder` in a list of models or tokenizers stands for all variants.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.specs.overrides import apply_override
from orchestrator.specs.problems import dotted, place_of, shown
from orchestrator.specs.references import NAME_FIELDS, STAGE_MARK
from orchestrator.specs.yaml_text import KeyPath, Place, YamlDocument

Places = dict[KeyPath, Place]
Members = Mapping[str, list[str]]
"""Variants of stages: from `@stage` to each `@stage.variant`."""


def unfold_variants(document: YamlDocument) -> None:
    """Put the variants of a document's stages in these stages' places. Raises: SpecError, naming the variant."""
    written = document.values.get("stages")
    if not isinstance(written, dict):
        return
    stages = document.values["stages"] = {}
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
    for name, part in stages.items():
        stages[name] = _unfold_names(part, "", ("stages", name), members, document.places)


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


def _unfold_names(value: Any, field: str, path: KeyPath, members: Members, places: Places) -> Any:
    """The same values with each `@stage` that has variants as these, where a field takes a list of names."""
    if isinstance(value, dict):
        return {
            key: _unfold_names(item, field if key == "choice" else key, (*path, key), members, places)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        unfolded = [
            _members_of(item, field, members) or [_unfold_names(item, field, path, members, places)] for item in value
        ]
        return [name for names in unfolded for name in names]
    found = _members_of(value, field, members)
    if found:
        raise SpecError(
            f"{place_of(path, places)}: {dotted(path)} is {shown(value)}, which has variants; "
            f"name one ({', '.join(found)}), or list it in `space`"
        )
    return value


def _members_of(value: Any, field: str, members: Members) -> list[str]:
    is_name = isinstance(value, str) and field in NAME_FIELDS
    return members.get(value, []) if is_name else []


def _mapping(value: Any, path: KeyPath, places: Places, what: str, *, empty: bool = False) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not (value or empty):
        raise SpecError(f"{place_of(path, places)}: {dotted(path)} is {shown(value)}; it must be a mapping {what}")
    return value
