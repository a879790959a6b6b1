"""Parts that a page is made of: frozen values without a word of HTML.

`rendering` alone turns them into HTML, so that a report in a file and a page that a server sends look the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]


def is_numeric(value: object) -> bool:
    """Whether a value is a number, which a truth value is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class Facts:
    """Names and what is known of them, in the order of reading; empty values are left out."""

    values: Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """Rows of plain values, which a reader may sort by a column."""

    columns: Sequence[str]
    rows: Sequence[Row]


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
    """Sentence below the picture: how to read it, and what it does not show."""
    table: Table | None = None
    """The same in figures: for who cannot see the picture, and for who wants the numbers."""


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
