"""Names of models and tokenizers in a spec: reading them, and putting others in their place.

They are the values of the fields below, wherever these stand, axes of a search space included. `@name` stands for an
earlier stage of a pipeline; `random` is no model. `init_from` may hold several names, one for each seed.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import Any, TypeVar

from orchestrator.base.errors import SpecError
from orchestrator.specs.fields import Section, Spec
from orchestrator.specs.search_axes import Choices


class Product(Enum):
    """Product of a run that a later stage of a pipeline can name."""

    TOKENIZER = auto()
    ENCODER = auto()
    """Any model, whatever its head: training can start from it, and it can teach."""
    TASK_MODEL = auto()
    """A model with the head of a task: it can be scored on one."""
    SNAPSHOTS = auto()
    """A pretrained model beside which its run may keep snapshots: the model after some of its steps."""


NAME_FIELDS = {
    "init_from": Product.ENCODER,
    "model": Product.TASK_MODEL,
    "teacher": Product.ENCODER,
    "rerank": Product.TASK_MODEL,
    "tokenizer": Product.TOKENIZER,
    "run": Product.SNAPSHOTS,
}
"""The fields whose values are names, and what such a name must lead to."""
TOKENIZER_FIELDS = tuple(field for field, product in NAME_FIELDS.items() if product is Product.TOKENIZER)
STAGE_MARK = "@"
RANDOM = "random"
_BETWEEN_STARTS = " | "

SpecT = TypeVar("SpecT", bound=Spec)
Replace = Callable[[str, str], str]
"""Function from a field's name and its value to another value."""


def replace_names(spec: SpecT, replace: Replace) -> SpecT:
    """Replace every name in a spec; `random` stays."""

    def replace_name(field: str, text: str) -> str:
        return text if field not in NAME_FIELDS or text == RANDOM else replace(field, text)

    return replace_texts(spec, replace_name)


def split_starts(init_from: str) -> list[str]:
    """Names in a value of `init_from`: several are one for each seed of a sweep, in order.

    >>> split_starts("words.0 | words.1"), split_starts("words.0")
    (['words.0', 'words.1'], ['words.0'])
    """
    return init_from.split(_BETWEEN_STARTS)


def join_starts(names: Iterable[str]) -> str:
    """Value of `init_from` with these names, of which each seed of a sweep takes one."""
    return _BETWEEN_STARTS.join(names)


def replace_texts(spec: SpecT, replace: Replace) -> SpecT:
    """Replace every text in a spec, of several starts in one `init_from` each."""
    replaced: SpecT = _replace(spec, "", replace)
    return replaced


def names_of(spec: Spec) -> list[tuple[str, str]]:
    """List every name in a spec with its field, in the spec's order."""
    found: list[tuple[str, str]] = []

    def note(field: str, name: str) -> str:
        found.append((field, name))
        return name

    replace_names(spec, note)
    return found


def resolve_references(spec: SpecT, outputs: Mapping[str, str]) -> SpecT:
    """Put what earlier stages made in the place of each `@name`. Raises: SpecError when none has that name."""

    def resolve(field: str, name: str) -> str:
        if not name.startswith(STAGE_MARK):
            return name
        if (stage := name.removeprefix(STAGE_MARK)) not in outputs:
            raise SpecError(f"{field}: {name} names no earlier stage; earlier ones: {', '.join(outputs) or 'none'}")
        return outputs[stage]

    return replace_names(spec, resolve)


def _replace(value: Any, field: str, replace: Replace) -> Any:
    if isinstance(value, Section):
        names = type(value).model_fields
        return value.model_copy(update={name: _replace(getattr(value, name), name, replace) for name in names})
    if isinstance(value, Choices):
        return Choices(tuple(dict.fromkeys(_replace(value.choice, field, replace))))
    if isinstance(value, dict):
        return {key: _replace(item, "" if field == "node_labels" else str(key), replace) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_replace(item, field, replace) for item in value)
    if not isinstance(value, str):
        return value
    return join_starts(replace(field, text) for text in (split_starts(value) if field == "init_from" else [value]))
