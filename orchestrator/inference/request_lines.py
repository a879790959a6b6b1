"""Lines that a fine-tuned model is asked about, as requests of its task's type."""

from orchestrator.errors import InputError
from orchestrator.storage.text_lines import parse_line
from orchestrator.tasks import TaskDefinition
from orchestrator.tasks.types.requests import Request


def parse_request(line: str, number: int, task: TaskDefinition) -> Request:
    """A line as a request: a JSON object, or plain text where the task's type reads some. Raises: InputError."""
    read = parse_line(line, number)
    keys, names = task.type.request_keys, task.columns.names
    if isinstance(read, dict):
        return Request(read, number, task.head, keys)
    values = None if names else task.type.parse_text(read)
    if values is None:
        raise InputError(
            f"line {number} is plain text; this model reads JSON objects with the keys {', '.join((*keys, *names))}"
        )
    return Request(values, number, task.head, keys)
