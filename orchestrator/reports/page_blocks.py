"""Blocks of a page as frozen values; `rendering` alone knows HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

Row = Mapping[str, Any]
_MOST_FIGURES = 200
"""Maximum number of a chart's points in its table."""


def is_numeric(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class Cell:
    """Cell that links to a page of the board, or is sorted by something else than its text."""

    text: str
    path: str = ""
    """Path of the page below the board's root, quoted; a file of a report has no links."""
    sorts_by: float | None = None

    def __str__(self) -> str:
        return self.text


def run_cell(run_id: str, text: str | None = None) -> Cell:
    """Cell that links to a run's page; its text is the id unless another is given."""
    return Cell(text or run_id, f"runs/{quote(run_id)}")


@dataclass(frozen=True)
class Facts:
    """Names and values, in the order of reading; empty values are left out."""

    values: Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """Rows of plain values or `Cell`s, which a reader may sort by a column."""

    columns: Sequence[str]
    """Keys in each row; also the headings, unless `headings` has another."""
    rows: Sequence[Row]
    headings: Mapping[str, str] = field(default_factory=dict)
    """Headings by column, for names from data, such as classes: they may equal another column's."""
    choices: Sequence[str] = ()
    """Run id of each row, where a reader may choose runs to compare; empty for no choice."""


@dataclass(frozen=True)
class Chart:
    """A picture that Plotly.js draws.

    Traces and layout are those of Plotly's figure reference (https://plotly.com/javascript/reference/); colors of text,
    background and grid are the page's own, so that a layout names none.
    """

    title: str
    traces: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any] = field(default_factory=dict)
    height_px: int = 360
    note: str = ""
    """Caption: how to read the picture, and its limits."""
    table: Table | None = None
    """The same in figures, for who cannot see the picture or wants the numbers; None: the points that it draws."""

    @property
    def figures(self) -> Table:
        if self.table is not None:
            return self.table
        points = [
            {"series": trace.get("name", ""), "x": x, "y": y}
            for trace in self.traces
            for x, y in zip(trace["x"], trace["y"], strict=True)
        ]
        columns = [name for name in ("series", "x", "y") if any(point[name] != "" for point in points)]
        return Table(columns, points[:_MOST_FIGURES])


@dataclass(frozen=True)
class Code:
    """Text to copy as it stands: a command, or a spec."""

    text: str


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    text: str


Block = Facts | Table | Chart | Code | Words


@dataclass(frozen=True)
class Section:
    """Blocks under a heading."""

    heading: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """A whole page: sections with nothing in them are left out."""

    title: str
    subtitle: str
    sections: Sequence[Section]
