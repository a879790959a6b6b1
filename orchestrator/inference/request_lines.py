"""Lines that a fine-tuned model is asked about, as requests of its task's type."""

from collections.abc import Sequence
from typing import Any

from orchestrator.errors import InputError
from orchestrator.inference.request_forms import example_line
from orchestrator.tasks import TaskDefinition
from orchestrator.tasks.types.requests import Request


def make_request(
    read: dict[str, Any] | str, number: int, task: TaskDefinition, text_columns: Sequence[str] = ()
) -> Request:
    """Make a request of what a line says: an object, or plain text where the task's type reads some.

    Args:
        text_columns: keys of the object whose values are those of the type's own keys, in their order, in an
            object that has all of them.

    Raises: InputError, naming the line.
    """
    keys, names = task.type.request_keys, task.columns.names
    if isinstance(read, dict):
        if text_columns and set(text_columns) <= set(read):
            texts = {key: read[name] for key, name in zip(keys, text_columns, strict=False)}
            read = {name: value for name, value in read.items() if name not in keys} | texts
        return Request(read, number, task.head, keys)
    values = None if names else task.type.parse_text(read)
    if values is None:
        raise InputError(
            f"line {number} is plain text; this model reads JSON objects with the keys {', '.join((*keys, *names))}, "
            f"as {example_line(task)}"
        )
    return Request(values, number, task.head, keys)
