"""Tasks without files, for tests that bring their own examples."""

from collections.abc import Sequence
from typing import Any

from bert_core.text.tokenization import Tokenizer
from orchestrator.specs.task import Head
from orchestrator.tasks import TASK_TYPES, FeatureOptions, Features, TaskDefinition, build_features


def define(head: Head, labels: Sequence[str] = (), **fields: Any) -> TaskDefinition:
    """A task of a type; `fields` are further ones of `TaskDefinition`."""
    return TaskDefinition(**{"id": "mine", "metric": "", **fields}, type=TASK_TYPES[head], labels=tuple(labels))


def features_of(
    head: Head, labels: Sequence[str], examples: Sequence[Any], tokenizer: Tokenizer, **options: Any
) -> Features[Any]:
    """Features of loose examples; `options` are fields of `FeatureOptions`, or of the task."""
    lengths = {name: options.pop(name) for name in list(options) if name in FeatureOptions.__dataclass_fields__}
    return build_features(define(head, labels, **options), examples, tokenizer, FeatureOptions(**lengths))
