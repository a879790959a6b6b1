"""Columns of a table as its first rows show them: how many values, what they look like."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from statistics import fmean
from typing import Literal

from orchestrator.drafting.examples import refuse_broken
from orchestrator.errors import InputError
from orchestrator.nearest import did_you_mean
from orchestrator.tasks.bio_tags import fit_one_scheme
from orchestrator.tasks.cell_values import (
    NO_LABEL_MARKS,
    has_decimal_commas,
    is_missing,
    read_label,
    read_number,
    stands_for_no_label,
)
from orchestrator.tasks.csv_tables import csv_header
from orchestrator.tasks.table_files import column_names, read_rows, table_name
from orchestrator.tasks.text_examples import are_texts
from orchestrator.tasks.text_files import BadRecords, plain_name, read_lines
from orchestrator.tasks.types.conll import read_spans

_SAMPLE_ROWS = 10_000
"""First rows of a table by which its columns are told apart."""
_HEADER_WORDS = 8
"""More words than this are no column's name."""
_FEW_VALUES = 20
_LONG_TEXT = 100
"""Characters from which on a value is no label, whose spelling would matter."""
_TEXT_SHARE = 0.9
"""Share of a column's values that are text where it is one of text: a few may look like numbers."""
_DELIMITER_NAMES = {";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True)
class ColumnFacts:
    """One column of the first rows."""

    name: str
    values: Sequence[object]
    """Values that are not missing."""

    @property
    def last_name(self) -> str:
        """The name in lower case; of a column within an object the last part."""
        return self.name.lower().rpartition(".")[2]

    @cached_property
    def distinct(self) -> frozenset[str]:
        """The different values as labels, without what stands for no label."""
        labels = frozenset(map(_as_label, self.values))
        return labels.difference(mark for mark in NO_LABEL_MARKS if stands_for_no_label(mark, labels))

    @cached_property
    def is_text(self) -> bool:
        """Whether values are text, and not numbers written as text."""
        texts = [value for value in self.values if isinstance(value, str)]
        return len(texts) > _TEXT_SHARE * len(self.values) and not all(map(is_number, texts))

    @cached_property
    def is_number(self) -> bool:
        """Whether all values are numbers, also with decimal commas where that is the only way to read them."""
        return self.are_all(is_number) or (bool(self.values) and has_decimal_commas(self.values))

    @cached_property
    def is_whole(self) -> bool:
        return self.are_all(lambda value: is_number(value) and float(str(value)).is_integer())

    @property
    def is_list(self) -> bool:
        """Whether values are lists, written out or not."""
        return self.are_all(lambda v: isinstance(v, list) or (isinstance(v, str) and v.strip()[:1] == "["))

    @cached_property
    def listed(self) -> Literal["words", "tags", "numbers", "spans"] | None:
        """Content of lists: tags of one scheme, other texts, whole numbers, names marked by character offsets."""
        if self.are_all(are_texts):
            return "tags" if fit_one_scheme(self.words) else "words"
        if self.are_all(lambda v: isinstance(v, list) and all(isinstance(item, int) for item in v)):
            return "numbers"
        spans = [read_spans(value) for value in self.values]
        return "spans" if None not in spans and any(spans) else None

    @property
    def words(self) -> set[str]:
        """All different texts of lists."""
        return set(chain.from_iterable(value for value in self.values if are_texts(value)))

    def are_all(self, test: Callable[[object], bool]) -> bool:
        """Whether there are values, and a test holds of all."""
        return bool(self.values) and all(map(test, self.values))

    @property
    def mean_words(self) -> float:
        """Words of a value on average."""
        return fmean(len(str(value).split()) for value in self.values) if self.values else 0.0


@dataclass(frozen=True)
class TableFacts:
    """The columns of a table, by its first rows."""

    path: str
    columns: Sequence[ColumnFacts]
    num_rows: int
    """Rows that were looked at."""
    is_whole: bool
    """Whether these are all."""
    layout: str
    """Kind of the table, for a person."""

    def column(self, name: str) -> ColumnFacts:
        """The column of that name. Raises: InputError where there is none."""
        found = next((column for column in self.columns if column.name == name), None)
        if found is None:
            near = did_you_mean(name, [column.name for column in self.columns])
            raise InputError(f"{self.path} has no column {name!r}{near}")
        return found

    @property
    def names(self) -> str:
        """The columns' names, for messages."""
        return ", ".join(repr(column.name) for column in self.columns)


def inspect_table(path: str) -> TableFacts:
    """Look at the columns of a table's first rows. Raises: TaskDataError, InputError for a table without a header."""
    bad, of_rows = BadRecords(path, "skip"), BadRecords(path, "skip")
    names = column_names(path, bad)
    if not names:
        raise InputError(f"{path} has no columns; {bad.first_problem or 'its rows share no key'}")
    rows = [values for _, values in islice(read_rows(path, names, of_rows, may_lack=names), _SAMPLE_ROWS + 1)]
    if not rows:
        why = f"the first at {of_rows.first_problem}" if of_rows.count else "its first line names columns: write some"
        raise InputError(f"{path} has no row that can be read, {why}")
    refuse_broken(of_rows, len(rows))
    cells = zip(*rows[:_SAMPLE_ROWS], strict=True)
    columns = [
        ColumnFacts(name, [value for value in values if not is_missing(value)])
        for name, values in zip(names, cells, strict=True)
    ]
    for column in columns if plain_name(path).endswith((".csv", ".tsv")) else ():
        few = len(column.distinct) <= _FEW_VALUES < len(column.values) and column.name in column.distinct
        if few or is_number(column.name) or len(column.name.split()) > _HEADER_WORDS:
            raise InputError(
                f"{path} begins with a row, not with the names of its columns ({column.name[:60]!r}); write a "
                "first line such as text,label above it"
            )
    return TableFacts(path, columns, min(len(rows), _SAMPLE_ROWS), len(rows) <= _SAMPLE_ROWS, _layout_text(path, bad))


def is_number(value: object) -> bool:
    """Whether a value is a number, or written as one."""
    return number_problem(value) is None


def number_problem(value: object) -> str | None:
    """Say what keeps a value from being a number."""
    try:
        is_none = isinstance(value, bool) or read_number(value) is None
    except ValueError as error:
        return str(error)
    return f"{value!r} is not a number" if is_none else None


def _as_label(value: object) -> str:
    if isinstance(value, str) and len(value) > _LONG_TEXT:
        return value
    try:
        return read_label(value) or ""
    except ValueError:  # a list or an object
        return str(value)


def _layout_text(path: str, bad: BadRecords) -> str:
    """Name of a table's kind, and of what stands between columns where that is no comma."""
    name = table_name(path) or "JSON"
    delimiter = csv_header((line for _, line in read_lines(path, bad)), None).delimiter if name == "CSV" else ","
    between = _DELIMITER_NAMES.get(delimiter, f"{delimiter!r} between columns")
    return name if delimiter == "," else f"{name} with {between}"
