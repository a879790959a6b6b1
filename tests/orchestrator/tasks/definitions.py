"""Tasks without files, for tests that bring their own examples."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from bert_core.text.tokenization import Tokenizer
from orchestrator.specs import RecipeSpec
from orchestrator.specs.task import Head
from orchestrator.tasks import scoring
from orchestrator.tasks.feature_cache import build_features
from orchestrator.tasks.features import Features
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types import TASK_TYPES, find_type
from orchestrator.tasks.types.base import TaskDefinition, TaskOptions

SENTENCES = [
    "The old house stands by the river near Oslo.",
    "Ada Lovelace wrote to Charles Babbage in London about the engine.",
    "A small engine drives the mill, and the miller sells flour in 1843.",
    "It rained for nine days; nobody left the house.",
]
"""From which tests train a tokenizer."""


def define(head: Head, labels: Sequence[str] = (), *, objective: Any = None, **fields: Any) -> TaskDefinition:
    """A task of a type; `fields` are further ones of `TaskDefinition`."""
    task_type = TASK_TYPES[head] if objective is None else find_type(head, objective)
    return TaskDefinition(**{"id": "mine", "metric": "", **fields}, type=task_type, labels=tuple(labels))


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


def decode(
    task: TaskDefinition, features: Features[Any], examples: Sequence[Any], outputs: Any, options: Any = None
) -> list[Any]:
    """Predictions by some options, or by those of a recipe that says nothing."""
    return scoring.decode(task, features, examples, outputs, options or options_of(task.head))


def write_records(path: Path, *records: Mapping[str, Any], features: Any = None) -> Path:
    """A file of JSON lines, or of Parquet by its name; `features` are what `datasets` notes of the columns there."""
    if path.suffix != ".parquet":
        return write(path, "".join(json.dumps(record) + "\n" for record in records))
    metadata = {"huggingface": json.dumps({"info": {"features": features or {}}})}
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(records)).replace_schema_metadata(metadata), path)
    return path


def write(path: Path, text: str) -> Path:
    """A file with a text as it stands."""
    path.write_text(text, encoding="utf-8", newline="")
    return path


def read(table: Any, path: Path, policy: Any = "error") -> tuple[list[Any], BadRecords]:
    """Examples that a reader makes of a file, and its findings on the way."""
    bad = BadRecords(str(path), policy)
    return list(table.read(bad.path, bad)), bad


def examples_of(table: Any, path: Path, policy: Any = "error") -> list[Any]:
    """Examples that a reader makes of a file."""
    return read(table, path, policy)[0]


def window_texts(features: Features[Any], tokenizer: Tokenizer) -> list[str]:
    """The text of each window, with its special tokens."""
    bounds = zip(features.cu_seqlens[:-1], features.cu_seqlens[1:], strict=True)
    return [tokenizer.decode(features.input_ids[a:b].tolist(), skip_special_tokens=False) for a, b in bounds]
