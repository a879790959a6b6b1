"""Tasks without files, for tests that bring their own examples."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bert_core.text.tokenization import Tokenizer
from orchestrator.specs import RecipeSpec
from orchestrator.specs.task import Head
from orchestrator.tasks import TASK_TYPES, Features, TaskDefinition, build_features
from orchestrator.tasks.options import TaskOptions


def define(head: Head, labels: Sequence[str] = (), **fields: Any) -> TaskDefinition:
    """A task of a type; `fields` are further ones of `TaskDefinition`."""
    return TaskDefinition(**{"id": "mine", "metric": "", **fields}, type=TASK_TYPES[head], labels=tuple(labels))


def options_of(head: Head, **values: Any) -> TaskOptions:
    """The type's options, those of a recipe that says nothing but for some values."""
    return replace(TASK_TYPES[head].options_type.of_recipe(RecipeSpec()), **values)


def features_of(
    head: Head, labels: Sequence[str], examples: Sequence[Any], tokenizer: Tokenizer, **options: Any
) -> Features[Any]:
    """Features of loose examples; `options` are fields of the type's options, or of the task."""
    names = TASK_TYPES[head].options_type.window_fields()
    values = {name: options.pop(name) for name in list(options) if name in names}
    return build_features(define(head, labels, **options), examples, tokenizer, options_of(head, **values))
