"""Checks of requests before a model is loaded: what a person has to mend is told at once, and no torch is needed."""

from collections.abc import Sequence

from orchestrator.errors import InputError
from orchestrator.inference.request_files import RequestFile
from orchestrator.inference.request_lines import make_request
from orchestrator.storage.text_lines import numbered_lines, parse_line
from orchestrator.storage.uris import is_local, local_path
from orchestrator.tasks.types.base import TaskDefinition


def check_requests(file: str, requests: RequestFile, task: TaskDefinition) -> None:
    """Check every record of a file, as answering it will. Raises: InputError, naming file and line.

    What can be read only once, a pipe, and what lies elsewhere is not looked at: answering tells what is wrong with it.
    """
    if not is_local(file) or not local_path(file).is_file():
        return
    columns = requests.text_columns(task)
    for number, line in numbered_lines(requests.read(file)):
        try:
            check_request(line, number, task, columns)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None


def check_request(line: str, number: int, task: TaskDefinition, text_columns: Sequence[str]) -> None:
    """Check that a line is a request of the task's type. Raises: InputError, naming the line."""
    task.type.example_of(task, make_request(parse_line(line, number), number, task, text_columns))
