"""The names in a spec that stand for models and tokenizers: reading them, and putting others in their place.

They are the values of the fields below, wherever these stand, axes of a search space included. `@name` stands for an
earlier stage of a pipeline; `random` is no model.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from orchestrator.errors import SpecError
from orchestrator.search.axes import Choices
from orchestrator.specs.fields import Section, Spec

MODEL_FIELDS = ("init_from", "model", "teacher", "rerank")
TOKENIZER_FIELDS = ("tokenizer",)
STAGE_MARK = "@"
RANDOM = "random"
_MAKERS = {
    "init_from": ("pretrain", "sweep", "distill"),
    "model": ("sweep", "distill"),
    "teacher": ("pretrain", "sweep", "distill"),
    "rerank": ("sweep", "distill"),
    "tokenizer": ("tokenizer", "pretrain", "sweep", "distill"),
}
"""The kinds of stages whose result a field can use; what is scored has a task's head."""

SpecT = TypeVar("SpecT", bound=Spec)
Replace = Callable[[str, str], str]
"""From a field's name and its value to another value."""


def replace_names(spec: SpecT, replace: Replace) -> SpecT:
    """The spec with every name replaced; `random` stays."""
    replaced: SpecT = _replace(spec, "", replace)
    return replaced


def names_of(spec: Spec) -> list[tuple[str, str]]:
    """Every name with its field, in the spec's order."""
    found: list[tuple[str, str]] = []

    def note(field: str, name: str) -> str:
        found.append((field, name))
        return name

    replace_names(spec, note)
    return found


def check_references(stages: Mapping[str, Spec]) -> None:
    """See that each `@name` names an earlier stage that makes what the field needs. Raises: SpecError."""
    kinds: dict[str, str] = {}
    for stage, spec in stages.items():
        for field, name in names_of(spec):
            if not name.startswith(STAGE_MARK):
                continue
            kind = kinds.get(name.removeprefix(STAGE_MARK))
            if kind is None:
                earlier = ", ".join(kinds) or "there is none"
                raise SpecError(f"stages.{stage}: {name} names no earlier stage; earlier ones: {earlier}")
            if kind not in _MAKERS[field]:
                raise SpecError(
                    f"stages.{stage}: {field} {name} is a stage of kind {kind}; "
                    f"name one of kind {' or '.join(_MAKERS[field])}"
                )
        kinds[stage] = spec.kind


def resolve_references(spec: SpecT, outputs: Mapping[str, str]) -> SpecT:
    """The spec with each `@name` replaced. Raises: SpecError when no earlier stage has that name."""

    def resolve(field: str, name: str) -> str:
        if not name.startswith(STAGE_MARK):
            return name
        stage = name.removeprefix(STAGE_MARK)
        if stage not in outputs:
            raise SpecError(f"{field}: {name} names no earlier stage; earlier ones: {', '.join(outputs) or 'none'}")
        return outputs[stage]

    return replace_names(spec, resolve)


def _replace(value: Any, field: str, replace: Replace) -> Any:
    if isinstance(value, Section):
        names = type(value).model_fields
        return value.model_copy(update={name: _replace(getattr(value, name), name, replace) for name in names})
    if isinstance(value, Choices):
        return Choices(_replace(value.choice, field, replace))
    if isinstance(value, dict):
        return {key: _replace(item, str(key), replace) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_replace(item, field, replace) for item in value)
    is_name = isinstance(value, str) and value != RANDOM and field in MODEL_FIELDS + TOKENIZER_FIELDS
    return replace(field, value) if is_name else value
