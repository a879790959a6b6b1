"""Requests that a fine-tuned model is asked, whatever form their file has, and their checks, without torch.

    .csv .tsv .parquet     a request for each row, from the columns that the model reads; the others come back untouched
    CoNLL columns          a sentence's words, with tags or without (ner)
    .json                  SQuAD's questions and passages (qa)
    anything else          a line is a text or a JSON object (`make_request`)

A record becomes a JSON line, so that lines are all that a model's workers read. Empty lines stand in place of a file's
other lines, so that a message names the line of the file.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from orchestrator.base.errors import InputError
from orchestrator.base.nearest import no_file
from orchestrator.inference.line_blocks import ModelInput
from orchestrator.storage import exists
from orchestrator.storage.text_lines import numbered_lines, parse_line, stream_lines
from orchestrator.storage.uris import is_local, local_path
from orchestrator.tasks.csv_tables import declared_delimiter, fields_of
from orchestrator.tasks.table_files import JSON_ENDINGS, column_names, read_rows, table_name
from orchestrator.tasks.text_files import BadRecords, Reader, plain_name
from orchestrator.tasks.types.base import AnyTaskType, TaskDefinition
from orchestrator.tasks.types.conll import is_named_conll
from orchestrator.tasks.types.requests import Request

ANSWER_COLUMNS = ("prediction", "score")
"""Columns that a table gets."""
_FLAT_TABLES = (".csv", ".tsv")
"""Tables whose cells are text alone."""


@dataclass(frozen=True)
class TableColumns:
    """Columns of a table that a model is asked about."""

    names: tuple[str, ...]
    """Names of all columns, in the file's order."""
    text: tuple[str, ...]
    """Names of the columns that are the request's keys, in their order."""


@dataclass(frozen=True)
class RequestFile:
    read: Callable[[str], Iterator[str]]
    """Reads the file of a path as lines."""
    table: TableColumns | None = None
    """Columns, where the file is a table."""

    def text_columns(self, task: TaskDefinition) -> Sequence[str]:
        """Names that stand for the request's keys: those of the table, else those that a task's files have."""
        return self.table.text if self.table else task.request_columns or task.type.default_columns


def inspect_requests(path: str, task: TaskDefinition, text_columns: Sequence[str] = ()) -> RequestFile:
    """Find out which form a file has and which of its columns the model reads.

    Args:
        text_columns: columns that a person named; empty: those that the model was fine-tuned on, else `text` and
            `text_pair`.

    Raises: InputError for a file that is not there, a table without these columns, or of another kind of task.
    """
    if not exists(path):
        raise InputError(
            f"{no_file(path)}\na text that looks like a file goes to stdin: echo TEXT | orchestrator predict MODEL"
        )
    name = plain_name(path)
    if name.endswith((*_FLAT_TABLES, ".parquet")):
        return RequestFile(_table_lines, _table_columns(path, task, text_columns))
    if text_columns:
        raise InputError(f"--text-column names a column of a table (.csv, .tsv, .parquet), and {path} is none")
    reader = task.type.unlabeled_reader(path)
    if reader is None:
        if is_named_conll(path):
            raise InputError(
                f"{path} has CoNLL columns by its name, and a model for {task.head} reads {forms_text(task)}; convert "
                "it, or rename it if it holds something else"
            )
        return RequestFile(partial(_plain_lines, text_columns=task.text_columns))
    return RequestFile(partial(_example_lines, reader=reader, task_type=task.type))


def refuse_table(lines: Iterable[str], text_columns: Sequence[str], file: str | None = None) -> Iterator[str]:
    """Pass on the lines of stdin or of a file whose name does not say what it is.

    Args:
        text_columns: columns that the model was fine-tuned on; `text` where that is not known.
        file: the file's name; None for stdin.

    Raises: InputError where the first line that is not blank is a table's, whose columns would be taken for text, or
        begins an array or an object of several lines in JSON.
    """
    rest = iter(lines)
    for line in rest:
        if _is_spread_json(line.strip("\ufeff \t\r\n")):
            raise InputError(
                f"{file or 'stdin'} begins as a JSON array, or an object over several lines; write one JSON object a "
                "line: jq -c '.[]' for an array, jq -c . for objects"
            )
        if file is not None and plain_name(file).endswith(JSON_ENDINGS) and line.lstrip().startswith('"'):
            raise InputError(f"the first line of {file} is a text in JSON; write objects, or rename it to .txt")
        header = line.removeprefix("\ufeff")
        names = fields_of(header)
        if declared_delimiter(header) is not None or (len(names) > 1 and {*(text_columns or ("text",))} <= {*names}):
            remedy = "a table is read from a file: save it as .csv, and give its name in place of stdin"
            if file is not None:
                remedy = "a table's name ends in .csv, or in .tsv where tabs stand between the columns: rename the file"
            raise InputError(f"{file or 'stdin'} begins as a table, with {header.strip()!r:.200}; {remedy}")
        yield line
        if line.strip():
            break
    yield from rest


def _is_spread_json(line: str) -> bool:
    """Whether a line is a JSON array, or begins one of objects, or an object that goes on below."""
    if re.fullmatch(r"[\[{]|\[\s*\{.*", line):
        return True
    try:
        return line.startswith("[") and isinstance(json.loads(line), list)
    except ValueError:
        return False


def _plain_lines(path: str, text_columns: Sequence[str]) -> Iterator[str]:
    return refuse_table(stream_lines(path), text_columns, path)


def _table_columns(path: str, task: TaskDefinition, text_columns: Sequence[str]) -> TableColumns:
    task_type = task.type
    keys = task_type.request.keys
    lists = [key for key in keys if key in task_type.request.list_keys]
    if lists and plain_name(path).endswith(_FLAT_TABLES):
        raise InputError(
            f"{path} is a {table_name(path)} table, and a model for {task.head} reads {forms_text(task)}; convert it"
        )
    names = column_names(path, _Records(path), within=False)
    for name in ANSWER_COLUMNS:
        if name in names:
            raise InputError(f"{path} has a column {name!r} already, which the answer would replace; rename it")
    needed = [key for key in keys if key not in task_type.request.optional_keys]
    usual = tuple(key for key in keys if key in names) if set(needed) <= {*names} else ()
    known = [columns for columns in (task.request_columns, task_type.default_columns) if set(columns) <= {*names}]
    chosen = tuple(text_columns) or next((columns for columns in known if columns), usual)
    missing = [name for name in (*chosen, *task.columns.names) if name not in names]
    missing += [] if chosen else task.request_columns or [key for key in needed if key not in names]
    if missing:
        raise InputError(
            f"{path} has no column {' and '.join(map(repr, missing))}, it has {', '.join(map(repr, names))}; name the "
            "text by --text-column"
        )
    if not len(needed) <= len(chosen) <= len(keys):
        reads = " and ".join(keys)
        raise InputError(f"the model reads {reads}; name a column for each by --text-column, in this order")
    return TableColumns(tuple(dict.fromkeys(names)), chosen)


class _Records(BadRecords):
    """Records of which a broken one ends the reading."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "error")

    def found(self, place: str, problem: str, num_lines: int = 1) -> None:
        raise InputError(f"{self.path}, {place}: {problem}; correct it, or leave it out")


def _table_lines(path: str) -> Iterator[str]:
    bad = _Records(path)
    names = tuple(dict.fromkeys(column_names(path, bad, within=False)))
    at = 1
    for place, values in read_rows(path, names, bad):
        number = int(place.split()[-1])
        yield from [""] * (number - at)
        yield _json_line(dict(zip(names, values, strict=True)))
        at = number + 1


def _example_lines(path: str, reader: Reader[Any], task_type: AnyTaskType) -> Iterator[str]:
    for example in reader.read(path, _Records(path)):
        values = {"id": example.id, **task_type.inputs(example)}
        if (document := getattr(example, "document", None)) is not None:  # which tells a tagger the sentence's context
            values["document"] = document
        yield _json_line(values)


def _json_line(values: dict[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False, default=str) + "\n"


def forms_text(task: TaskDefinition) -> str:
    """List the forms of files that a model reads, its own layout first."""
    task_type = task.type
    has_plain_lines = task_type.request.parse_text is not None and not task.columns.names
    forms = [
        task_type.own_layout,
        "lines of text" if has_plain_lines else "",
        f"JSON lines as {example_line(task)}",
        "Parquet with such lists" if task_type.request.list_keys else "tables (.csv, .tsv, .parquet)",
    ]
    return " or ".join(filter(None, forms))


def example_line(task: TaskDefinition) -> str:
    """A request as JSON, to try the model with."""
    return json.dumps(task.request_example, ensure_ascii=False)


def make_request(given: ModelInput, number: int, task: TaskDefinition, text_columns: Sequence[str] = ()) -> Request:
    """Make a request of what a line says: an object, or plain text where the task's type reads some.

    Args:
        text_columns: keys of the object whose values are those of the type's own keys, in their order, in an
            object that has all of them.

    Raises: InputError, naming the line.
    """
    form, names = task.type.request, task.columns.names
    keys = form.keys
    if isinstance(given, dict):
        if text_columns and set(text_columns) <= set(given):
            texts = {key: given[name] for key, name in zip(keys, text_columns, strict=False)}
            given = {
                name: value for name, value in given.items() if name not in form.optional_keys | texts.keys()
            } | texts
        return Request(given, number, task.head, keys)
    values = None if names or form.parse_text is None else form.parse_text(given)
    if values is None:
        raise InputError(
            f"line {number} is plain text; this model reads JSON objects with the keys {', '.join((*keys, *names))}, "
            f"as {example_line(task)}"
        )
    return Request(values, number, task.head, keys)


def check_requests(file: str, requests: RequestFile, task: TaskDefinition) -> int:
    """Check every record of a file, as answering it will; returns how many blank lines stand between plain lines.

    What can be read only once, a pipe, and what lies elsewhere is not looked at: answering tells what is wrong with it.

    Raises: InputError, naming file and line.
    """
    if not is_local(file) or not local_path(file).is_file():
        return 0
    columns = requests.text_columns(task)
    number = num_requests = 0
    for number, line in numbered_lines(requests.read(file)):
        num_requests += 1
        try:
            check_request(line, number, task, columns)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
    return 0 if requests.table else number - num_requests


def check_request(line: str, number: int, task: TaskDefinition, text_columns: Sequence[str]) -> None:
    """Check that a line is a request of the task's type. Raises: InputError, naming the line."""
    task.type.example_of(task, make_request(parse_line(line, number), number, task, text_columns))
