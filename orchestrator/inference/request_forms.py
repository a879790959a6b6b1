"""Forms of requests that a fine-tuned model reads, in words for a person whose file has another form."""

import json
from typing import Any

from orchestrator.tasks.types.base import TaskDefinition


def forms_text(task: TaskDefinition) -> str:
    """List the forms of files that a model reads, its own layout first."""
    task_type = task.type
    has_plain_lines = task_type.reads_plain_text and not task.columns.names
    forms = [
        task_type.own_layout,
        "lines of text" if has_plain_lines else "",
        f"JSON lines as {example_line(task)}",
        "Parquet with such lists" if task_type.list_keys else "tables (.csv, .tsv, .parquet)",
    ]
    return " or ".join(filter(None, forms))


def example_line(task: TaskDefinition) -> str:
    """A request as JSON: the example of the task's type, and the model's own columns without a value."""
    example: dict[str, Any] = {**task.type.example_request, **dict.fromkeys(task.columns.names)}
    return json.dumps(example, ensure_ascii=False)
