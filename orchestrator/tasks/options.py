"""Options of a task type: what decides, beside the data, how texts become windows and outputs become predictions."""

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

from orchestrator.specs.recipe import RecipeSpec


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The options that every type has; a subclass adds those of its type.

    A field that recipes have as well is given by the recipe. Any other has a default, and `TaskType.calibrate` sets it.
    """

    decoding_fields: ClassVar[frozenset[str]] = frozenset()
    """Names of the fields that only predictions depend on; the others decide the windows."""

    max_seq_length: int
    """Tokens of a window, special tokens included."""

    @classmethod
    def of_recipe(cls, recipe: RecipeSpec) -> Self:
        """The options that a recipe asks for, not calibrated."""
        return cls(**_given_by(recipe, cls))

    def with_recipe(self, recipe: RecipeSpec) -> Self:
        """The options that a recipe asks for, calibrated as these are."""
        return replace(self, **_given_by(recipe, type(self)))

    @classmethod
    def window_fields(cls) -> tuple[str, ...]:
        """Names of the fields that decide the windows."""
        return tuple(part.name for part in fields(cls) if part.name not in cls.decoding_fields)

    def window_values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.window_fields()}


def _given_by(recipe: RecipeSpec, options_type: type[TaskOptions]) -> dict[str, Any]:
    names = (part.name for part in fields(options_type))
    return {name: getattr(recipe, name) for name in names if name in RecipeSpec.model_fields}
