"""Layout of a table on a terminal: a name or a number is never folded.

fits                   every column at its full width
too wide               columns are left out by rank, prose is wrapped between words, names are shortened in the middle
too wide even so       columns that are meant for it stand below each row, on lines of their own
too wide for that      stacked: a block of `heading  text` lines for each row, with nothing left out
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.cells import cell_len

from orchestrator.cells import MISSING

GAP = "  "
"""Space between two columns."""
_SHORTEST_NAME = 16
"""Characters that a name keeps at least when it is shortened; names up to this length stay whole."""
_COMFORTABLE_NAME, _COMFORTABLE_PROSE = 24, 28
"""Widths below which columns of names and of prose are made only when no other column can be left out."""
_INDENT = "  "
"""Space before the lines that stand below a row."""


@dataclass(frozen=True)
class Column:
    """A column of texts, its heading first."""

    name: str
    texts: tuple[str, ...]
    is_number: bool = False
    """Whether it is aligned to the right and never shortened."""
    wraps: bool = True
    """Whether long texts of several words may take several lines."""

    @cached_property
    def width(self) -> int:
        """Width of its longest text."""
        return max(map(cell_len, self.texts))

    @cached_property
    def is_prose(self) -> bool:
        """Whether its texts may be wrapped between words: some text is long and has several."""
        return (
            self.wraps
            and not self.is_number
            and any(" " in text and cell_len(text) > _SHORTEST_NAME for text in self.texts)
        )

    @cached_property
    def least_width(self) -> int:
        """Width below which the column would lose its meaning."""
        if self.is_number:
            return self.width
        if self.is_prose:
            return max(cell_len(word) for text in self.texts for word in text.split(" "))
        return min(self.width, max(_SHORTEST_NAME, cell_len(self.texts[0])))

    @property
    def comfortable_width(self) -> int:
        """Width from which the column reads well."""
        comfortable = _COMFORTABLE_PROSE if self.is_prose else _COMFORTABLE_NAME
        return max(self.least_width, min(self.width, comfortable))


@dataclass(frozen=True)
class Layout:
    """Lines of a table as they fit."""

    header: str
    """Line of the headings; empty for a stacked table, whose lines have them."""
    lines: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """Names of the columns that are not shown."""


def lay_out(
    columns: Sequence[Column], width: int | None, spare: Sequence[str] = (), below: Sequence[str] = ()
) -> Layout:
    """Lay a table out.

    Args:
        width: characters of a line; None: as many as there are.
        spare: columns that are left out, from the first one on, while the others would become too narrow.
        below: columns that stand below each row, from the first one on, while the others would still be too narrow.
    """
    if width is None:
        return Layout(*_side_by_side(columns, [column.width for column in columns]))
    ways = [_beside_and_below(columns, width, spare, below[:number]) for number in range(len(below) + 1)]
    for reads_well in (True, False):
        fitting = [way for way in ways if _fits(way[0], width, reads_well=reads_well)]
        if fitting:
            beside, under = max(fitting, key=lambda way: len(way[0]) + len(way[1]))  # the first that leaves out least
            left_out = tuple(column.name for column in columns if column not in (*beside, *under))
            lines = _side_by_side(beside, _fitted_widths(beside, width), _blocks(under, width - len(_INDENT)))
            return Layout(*lines, left_out)
    return _stacked(columns, width)


def _fits(beside: Sequence[Column], width: int, *, reads_well: bool) -> bool:
    widths = [column.comfortable_width if reads_well else column.least_width for column in beside]
    return bool(beside) and _total(widths) <= width


def _beside_and_below(
    columns: Sequence[Column], width: int, spare: Sequence[str], below: Sequence[str]
) -> tuple[list[Column], list[Column]]:
    """Columns that stand side by side, without the spare ones that find no room, and those below the rows."""
    beside = [column for column in columns if column.name not in below]
    for name in spare:
        if len(beside) > 1 and _total([column.comfortable_width for column in beside]) > width:
            beside = [column for column in beside if column.name != name]
    return beside, [column for column in columns if column.name in below]


def shorten(text: str, width: int) -> str:
    """The text with as much left out of its middle that it fits.

    >>> shorten("pretraining-on-notes@12", 16)
    'pretrain…otes@12'
    """
    if cell_len(text) <= width:
        return text
    beginning = _beginning(text, width - width // 2)
    end = _beginning(text[::-1], width - 1 - cell_len(beginning))[::-1]
    return f"{beginning}…{end}"


def _beginning(text: str, width: int) -> str:
    end = width
    while cell_len(text[:end]) > width:
        end -= 1
    return text[:end]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _fitted_widths(columns: Sequence[Column], width: int) -> list[int]:
    """Widths that fill a line: each column has its least, and the narrowest ones get what is over first."""
    widths = [column.least_width for column in columns]
    for _ in range(width - _total(widths)):
        growing = [number for number, column in enumerate(columns) if widths[number] < column.width]
        if not growing:
            break
        widths[min(growing, key=lambda number: widths[number])] += 1
    return widths


def _side_by_side(
    columns: Sequence[Column], widths: Sequence[int], below: Sequence[Sequence[str]] = ()
) -> tuple[str, tuple[str, ...]]:
    """The line of the headings, and those of the rows.

    Args:
        below: lines to stand below each row.
    """
    lines: list[str] = []
    for number in range(len(columns[0].texts)):
        cells = [
            wrapped(column.texts[number], width) if column.is_prose else [shorten(column.texts[number], width)]
            for column, width in zip(columns, widths, strict=True)
        ]
        for row in range(max(map(len, cells))):
            padded = [
                _padded(cell[row] if row < len(cell) else "", width, to_the_right=column.is_number)
                for cell, width, column in zip(cells, widths, columns, strict=True)
            ]
            lines.append(GAP.join(padded).rstrip())
        if number and below:
            lines += [f"{_INDENT}{line}" for line in below[number - 1]]
    return lines[0], tuple(lines[1:])


def _padded(text: str, width: int, *, to_the_right: bool) -> str:
    spaces = " " * (width - cell_len(text))
    return spaces + text if to_the_right else text + spaces


def _stacked(columns: Sequence[Column], width: int) -> Layout:
    lines: list[str] = []
    for lines_of_row in _blocks(columns, width):
        lines += ["", *lines_of_row] if lines else lines_of_row
    return Layout("", tuple(lines))


def _blocks(columns: Sequence[Column], width: int) -> list[list[str]]:
    """Lines of some columns for each row, without the headings' row."""
    num_rows = len(columns[0].texts) if columns else 1
    return [
        block([(column.texts[0], column.texts[number]) for column in columns], width) for number in range(1, num_rows)
    ]


def block(fields: Sequence[tuple[str, str]], width: int | None) -> list[str]:
    """Lines of one record: each field's name and text, prose wrapped between words; fields without a text are left out.

    Args:
        width: characters of a line; None: as many as there are.
    """
    names = max((cell_len(name) for name, _ in fields), default=0)
    lines = []
    for name, text in fields:
        if text != MISSING:
            rows = [text] if width is None else wrapped(text, max(20, width - names - len(GAP)))
            lines += [f"{_padded(label, names, to_the_right=False)}{GAP}{row}" for label, row in _labeled(name, rows)]
    return lines


def _labeled(name: str, rows: Sequence[str]) -> list[tuple[str, str]]:
    return [(name if number == 0 else "", row) for number, row in enumerate(rows)]


def wrapped(text: str, width: int) -> list[str]:
    """The text in rows no wider than that, cut between words alone: a word that is wider keeps a row of its own.

    >>> wrapped("the text of a cell", 11)
    ['the text of', 'a cell']
    """
    rows: list[str] = []
    for word in text.split(" "):
        if rows and cell_len(rows[-1]) + 1 + cell_len(word) <= width:
            rows[-1] += f" {word}"
        else:
            rows.append(word)
    return rows
