"""Columns of a table as its first rows show them: how many values, what they look like."""

from collections.abc import Callable, Sequence
from itertools import chain, islice
from statistics import fmean
from typing import Literal, NamedTuple

from orchestrator.base.errors import InputError
from orchestrator.base.nearest import did_you_mean
from orchestrator.tasks.bio_tags import fit_one_form, read_spans
from orchestrator.tasks.cell_values import (
    NO_LABEL_MARKS,
    has_decimal_commas,
    is_missing,
    is_number,
    read_label,
    read_number,
    stands_for_no_label,
    unpack_cell,
)
from orchestrator.tasks.table_files import column_names, read_rows
from orchestrator.tasks.text_examples import are_texts
from orchestrator.tasks.text_files import BadRecords, plain_name

MAX_BAD_SHARE = 0.1
"""Share of broken records above which a file is not what it is taken for."""
_SAMPLE_ROWS = 10_000
"""First rows of a table by which its columns are told apart."""
_HEADER_WORDS = 8
"""More words than this are no column's name."""
NAMES_OF_LISTS = ("labels", "classes", "categories", "topics", "tags")
"""Names of columns whose values are lists, so that a comma in them is no decimal one."""
_FEW_VALUES = 20
_LONG_TEXT = 100
"""Characters from which on a value is no label, whose spelling would matter."""
_TEXT_SHARE = 0.5
"""Share of a column's values that are text where it is one of text: some may be numbers."""
_FEWEST_RECORDS = 0.01
"""Share of the records of JSON that have a key, from which on it is a column."""


class ColumnFacts(NamedTuple):
    """One column of the first rows."""

    name: str
    last_name: str
    """The name in lower case; of a column within an object the last part."""
    values: Sequence[object]
    """Values that are not missing; lists and objects that cells hold as text are read."""
    distinct: frozenset[str]
    """The different values as labels, without what stands for no label."""
    mean_words: float
    is_text: bool
    """Whether values are text, and not numbers written as text."""
    is_number: bool
    """Whether all values are numbers, also with decimal commas where that is the only way to read them."""
    is_whole: bool
    is_list: bool
    listed: Literal["words", "tags", "numbers", "spans"] | None
    """Content of lists: other texts, tags of one scheme, whole numbers, names marked by character offsets."""
    words: frozenset[str]


class TableFacts(NamedTuple):
    """The columns of a table, by its first rows."""

    path: str
    columns: Sequence[ColumnFacts]
    num_rows: int
    is_whole: bool

    def column(self, name: str) -> ColumnFacts:
        """The column of that name. Raises: InputError where there is none."""
        found = next((column for column in self.columns if column.name == name), None)
        if found is None:
            near = did_you_mean(name, [column.name for column in self.columns])
            raise InputError(f"{self.path} has no column {name!r}{near}")
        return found

    @property
    def names(self) -> str:
        kinds: dict[type, str] = {list: " (lists)", dict: " (objects)"}
        return ", ".join(f"{c.name!r}{kinds.get(type(next(iter(c.values), None)), '')}" for c in self.columns)


def inspect_table(path: str) -> TableFacts:
    """Look at the columns of a table's first rows. Raises: TaskDataError, InputError for a table without a header."""
    bad, of_rows = BadRecords(path, "skip"), BadRecords(path, "skip")
    names = column_names(path, bad, share=_FEWEST_RECORDS)
    if not names:
        raise InputError(f"{path} has no columns; {bad.first_problem or 'its rows share no key'}")
    rows = [values for _, values in islice(read_rows(path, names, of_rows, may_lack=names), _SAMPLE_ROWS + 1)]
    if not rows:
        why = f"the first at {of_rows.first_problem}" if of_rows.count else "its first line names columns: write some"
        raise InputError(f"{path} has no row that can be read, {why}")
    refuse_broken(of_rows, len(rows))
    cells = zip(*rows[:_SAMPLE_ROWS], strict=True)
    columns = [_inspect_column(name, values) for name, values in zip(names, cells, strict=True)]
    for column in columns if plain_name(path).endswith((".csv", ".tsv")) else ():
        few = len(column.distinct) <= _FEW_VALUES < len(column.values) and column.name in column.distinct
        if few or is_number(column.name) or len(column.name.split()) > _HEADER_WORDS:
            raise InputError(
                f"{path} begins with a row, not with the names of its columns, or has these once more "
                f"({column.name[:60]!r}); write a first line such as text,label, and no other like it"
            )
    return TableFacts(path, columns, min(len(rows), _SAMPLE_ROWS), len(rows) <= _SAMPLE_ROWS)


def _inspect_column(name: str, cells: Sequence[object]) -> ColumnFacts:
    values = [unpack_cell(value) for value in cells if not is_missing(value)]
    values = [] if all(value == [] for value in values) else values

    def are_all(test: Callable[[object], bool]) -> bool:
        return bool(values) and all(map(test, values))

    labels = frozenset(map(_as_label, values))
    texts = [value for value in values if isinstance(value, str)]
    words = frozenset(chain.from_iterable(value for value in values if are_texts(value)))
    items = [item for value in values if isinstance(value, list) for item in value]
    listed: Literal["words", "tags", "numbers", "spans"] | None = None
    if are_all(are_texts):
        listed = "tags" if fit_one_form(words) else "words"
    elif are_all(lambda value: isinstance(value, list)) and all(map(_is_whole, items)):
        listed = "numbers"
    elif are_all(lambda value: read_spans(value) is not None) and any(map(read_spans, values)):
        listed = "spans"
    may_be_commas = values and not are_all(is_number) and name.lower() not in NAMES_OF_LISTS
    is_comma = bool(may_be_commas) and has_decimal_commas(values)
    are_numbers = is_comma or are_all(is_number)
    return ColumnFacts(
        name,
        name.lower().rpartition(".")[2],
        values,
        distinct=labels.difference(mark for mark in NO_LABEL_MARKS if stands_for_no_label(mark, labels)),
        mean_words=fmean(len(str(value).split()) for value in values) if values else 0.0,
        is_text=len(texts) > _TEXT_SHARE * len(values) and not all(map(is_number, texts)),
        is_number=are_numbers,
        is_whole=are_numbers and all(float(read_number(v, decimal_comma=is_comma) or 0).is_integer() for v in values),
        is_list=are_all(lambda value: isinstance(value, list)),
        listed=listed,
        words=words,
    )


def _is_whole(item: object) -> bool:
    return isinstance(item, int | float) and float(item).is_integer()


def refuse_broken(bad: BadRecords, num_read: int) -> None:
    """Refuse a file of which many records cannot be used. Raises: InputError, with the first one's problem."""
    num_records = bad.count + num_read
    if bad.count > MAX_BAD_SHARE * num_records:
        raise InputError(
            f"{bad.path}: {bad.count:,} of {num_records:,} records cannot be used, the first at {bad.first_problem}; "
            "mend the file, or name other columns"
        )


def _as_label(value: object) -> str:
    if isinstance(value, str) and len(value) > _LONG_TEXT:
        return value
    try:
        return read_label(value) or ""
    except ValueError:  # a list or an object
        return str(value)
