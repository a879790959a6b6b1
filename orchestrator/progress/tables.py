"""Tables and records: whole lines in a pipe or a file; on a terminal rich folds names and prose, never a number."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rich.cells import cell_len

from orchestrator.cells import MISSING
from orchestrator.progress.log_lines import wrapped

if TYPE_CHECKING:
    from rich.table import Table

_GAP = "  "
_LEAST_NAME, _LEAST_PROSE, _LONGEST_WORD = 24, 28, 40
"""Widths to which names, prose, and the longest word within it may be folded."""


@dataclass(frozen=True)
class Column:
    """A column of texts, its heading first."""

    name: str
    texts: tuple[str, ...]
    is_number: bool = False
    """Whether it is aligned to the right and never folded."""

    @cached_property
    def width(self) -> int:
        """Width of its longest text."""
        return max(map(cell_len, self.texts))

    @cached_property
    def least_width(self) -> int:
        """Width from which the column reads well."""
        if self.is_number:
            return self.width
        word = max(cell_len(word) for text in self.texts for word in text.split(" "))
        return min(self.width, _LEAST_NAME if word == self.width else max(_LEAST_PROSE, min(word, _LONGEST_WORD)))


def plain_lines(columns: Sequence[Column]) -> list[str]:
    """A line for each row, the headings first, with every column at its full width."""
    rows = zip(*(column.texts for column in columns), strict=True)
    return [_GAP.join(map(_padded, row, columns)).rstrip() for row in rows]


def _padded(text: str, column: Column) -> str:
    spaces = " " * (column.width - cell_len(text))
    return spaces + text if column.is_number else text + spaces


def full_width(columns: Sequence[Column]) -> int:
    """Width of a table with every column at its full width."""
    return sum(column.width for column in columns) + len(_GAP) * (len(columns) - 1)


def fitting(columns: Sequence[Column], width: int, spare: Sequence[str], *, may_fold: bool = True) -> list[Column]:
    """The columns without the spare ones, from the first one on, that find no room; none where the rest has none."""
    total = _total if may_fold else full_width
    kept = list(columns)
    for name in spare:
        if len(kept) > 1 and total(kept) > width:
            kept = [column for column in kept if column.name != name]
    return kept if total(kept) <= width else []


def rich_table(columns: Sequence[Column], width: int, *, one_line: bool = False) -> "Table":
    """Make a table of columns that fit: the narrowest ones get what is over their least width.

    Args:
        one_line: whether a text that is too long is cut, as in a view whose height is limited.
    """
    from rich.table import Table
    from rich.text import Text

    widths = [column.least_width for column in columns]
    for _ in range(width - _total(columns)):
        growing = [number for number, column in enumerate(columns) if widths[number] < column.width]
        if growing:
            widths[min(growing, key=widths.__getitem__)] += 1
    table = Table(box=None, pad_edge=False, padding=(0, len(_GAP), 0, 0), header_style="bold")
    for column, fitted in zip(columns, widths, strict=True):
        overflow, justify = "ellipsis" if one_line else "fold", "right" if column.is_number else "left"
        heading = Text(column.texts[0])
        table.add_column(heading, width=fitted, justify=justify, no_wrap=one_line, overflow=overflow)  # type: ignore[arg-type]
    for texts in zip(*(column.texts[1:] for column in columns), strict=True):
        table.add_row(*map(Text, texts))
    return table


def lines_with_records(columns: Sequence[Column], below: Sequence[Column], width: int) -> list[str]:
    """A line for each row, as `plain_lines` has it, and below it a record of what has no room beside the others."""
    header, *rows = plain_lines(columns)
    blocks = records(below, width - len(_GAP))
    return [header, *(line for row, block in zip(rows, blocks, strict=True) for line in (row, *map(_indented, block)))]


def records(columns: Sequence[Column], width: int) -> list[list[str]]:
    """Lines of a record for each row of a table."""
    headings, *rows = zip(*(column.texts for column in columns), strict=True)
    return [record_lines([*zip(headings, row, strict=True)], width) for row in rows]


def record_lines(fields: Sequence[tuple[str, str]], width: int | None = None) -> list[str]:
    """Lines of a record: each field's name and text, folded between words; fields without a text are left out.

    Args:
        width: characters of a line; None: as many as there are.
    """
    names = Column("", ("", *(name for name, _ in fields)))
    lines = []
    for name, text in fields:
        if text != MISSING:
            rows = [text] if width is None else wrapped(text, max(20, width - names.width - len(_GAP)))
            lines += [_padded("" if number else name, names) + _GAP + row for number, row in enumerate(rows)]
    return lines


def _indented(line: str) -> str:
    return _GAP + line


def _total(columns: Sequence[Column]) -> int:
    return sum(column.least_width for column in columns) + len(_GAP) * (len(columns) - 1)
