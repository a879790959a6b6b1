"""Tables and records as lines: whole in a pipe or a file; on a terminal names and prose are folded, never a number."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from rich.cells import cell_len, chop_cells

from orchestrator.base.console.log_lines import wrapped
from orchestrator.base.formatting import MISSING

_GAP = "  "
_LEAST_NAME, _LEAST_PROSE, _LONGEST_WORD = 24, 28, 40
"""Minimum widths of names, of prose, and of the longest word of prose."""


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
        """Minimum width at which the column is readable."""
        if self.is_number:
            return self.width
        word = max(cell_len(word) for text in self.texts for word in text.split(" "))
        return min(self.width, _LEAST_NAME if word == self.width else max(_LEAST_PROSE, min(word, _LONGEST_WORD)))

    def padded(self, text: str, width: int) -> str:
        spaces = " " * (width - cell_len(text))
        return spaces + text if self.is_number else text + spaces


def full_width(columns: Sequence[Column]) -> int:
    return _table_width([column.width for column in columns])


def fitting(columns: Sequence[Column], width: int, spare: Sequence[str], *, may_fold: bool = True) -> list[Column]:
    """Drop spare columns, the first ones first, until the table fits; empty if it never does."""

    def total(kept: Sequence[Column]) -> int:
        return _table_width([column.least_width for column in kept]) if may_fold else full_width(kept)

    kept = list(columns)
    for name in spare:
        if len(kept) > 1 and total(kept) > width:
            kept = [column for column in kept if column.name != name]
    return kept if total(kept) <= width else []


def plain_lines(columns: Sequence[Column]) -> list[str]:
    """A line for each row, the headings first, with every column at its full width."""
    rows = zip(*(column.texts for column in columns), strict=True)
    return [_line(row, columns, [column.width for column in columns]) for row in rows]


def folded_lines(columns: Sequence[Column], width: int) -> list[str]:
    """Lines of a table that fits, with folded texts; spare width goes to the narrowest columns."""
    widths = [column.least_width for column in columns]
    for _ in range(width - _table_width(widths)):
        growing = [number for number, column in enumerate(columns) if widths[number] < column.width]
        if growing:
            widths[min(growing, key=widths.__getitem__)] += 1
    lines = []
    for row in zip(*(column.texts for column in columns), strict=True):
        cells = (_folded(text, column_width) for text, column_width in zip(row, widths, strict=True))
        lines += [_line(texts, columns, widths) for texts in zip_longest(*cells, fillvalue="")]
    return lines


def lines_with_records(columns: Sequence[Column], below: Sequence[Column], width: int) -> list[str]:
    """Line for each row, as `plain_lines` has it, with a record of further columns below it."""
    header, *rows = plain_lines(columns)
    blocks = records(below, width - len(_GAP))
    both = zip(rows, blocks, strict=True)
    return [header, *(line for row, block in both for line in (row, *(_GAP + told for told in block)))]


def records(columns: Sequence[Column], width: int) -> list[list[str]]:
    """Lines of a record for each row of a table."""
    headings, *rows = zip(*(column.texts for column in columns), strict=True)
    return [record_lines([*zip(headings, row, strict=True)], width) for row in rows]


def record_lines(fields: Sequence[tuple[str, str]], width: int | None = None) -> list[str]:
    """Lines of a record: each field's name and text, folded between words; fields without a text are left out.

    Args:
        width: characters of a line; None: as many as there are.
    """
    names = max((cell_len(name) for name, _ in fields), default=0)
    lines = []
    for name, text in fields:
        if text != MISSING:
            rows = [text] if width is None else wrapped(text, max(20, width - names - len(_GAP)))
            begin = name + " " * (names - cell_len(name)) + _GAP
            lines += [begin + rows[0], *(" " * (names + len(_GAP)) + row for row in rows[1:])]
    return lines


def _line(texts: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    cells = zip(texts, columns, widths, strict=True)
    return _GAP.join(column.padded(text, width) for text, column, width in cells).rstrip()


def _folded(text: str, width: int) -> list[str]:
    """Wrap a text between words; a wider word is cut."""
    return [piece for row in wrapped(text, width) for piece in chop_cells(row, width)]


def _table_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)
