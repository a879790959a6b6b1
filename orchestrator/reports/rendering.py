"""A page as HTML: one file that needs nothing else, with style, script and Plotly.js inside, or a page of the board.

Every text is escaped; what a script reads is JSON, in which `<`, `>`, `&` and quotes are escaped too; the page's own
Content-Security-Policy forbids it to load anything from anywhere, but from its server where it has one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from orchestrator.base.formatting import column_cells, heading, plain_value
from orchestrator.reports.page_blocks import Block, Cell, Chart, Code, Facts, Page, Section, Table, Words, is_numeric

_HERE = "orchestrator.reports"


@dataclass(frozen=True)
class Column:
    """Column of a table: texts, sort keys and links of its cells."""

    heading: str
    texts: Sequence[str]
    is_number: bool
    sorts_by: Sequence[float | None]
    paths: Sequence[str]
    """Link of each cell below the board's root; empty for none."""


@dataclass(frozen=True)
class BoardOptions:
    """Options of a page of the board."""

    is_live: bool = False
    """Whether the page reloads its data every few seconds."""
    query: str | None = None
    """Query of a list of runs; None for a page without the form."""
    trials: bool = False
    archived: bool = False


def render(page: Page, served: BoardOptions | None = None) -> str:
    """Render a page as HTML: a file, or a page of the board."""
    full = (Section(one.heading, [block for block in one.blocks if _is_full(block)]) for one in page.sections)
    sections = [section for section in full if section.blocks]
    has_charts = any(isinstance(block, Chart) for section in sections for block in section.blocks)
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            sections=sections,
            draw=partial(_draw, is_served=served is not None),
            style=Markup(_file("page.css")),
            script=Markup(_file("page.js")),
            plotly=Markup(plotly_source()) if has_charts and served is None else "",
            served=served,
        )
    )


@cache
def plotly_source() -> str:
    return files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")


def columns_of(table: Table) -> list[Column]:
    """Columns of a table; a column's fractions have the same number of decimals, as in the terminal."""
    columns = []
    for name in table.columns:
        cells = [row.get(name) for row in table.rows]
        values = [value.text if isinstance(value, Cell) else value for value in cells]
        known = [value for value in values if value is not None]
        is_number = bool(known) and all(map(is_numeric, known))
        sorts_by = [each.sorts_by if isinstance(each, Cell) else each if is_number else None for each in cells]
        paths = [each.path if isinstance(each, Cell) else "" for each in cells]
        shown = table.headings.get(name) or heading(name)
        columns.append(Column(shown, column_cells(values, name), is_number, sorts_by, paths))
    return columns


def chart_values(chart: Chart) -> Any:
    """Traces, layout and height of a chart as JSON values: null for NaN and infinities."""
    return plain_value({"traces": chart.traces, "layout": chart.layout, "height": chart.height_px}, is_drawn=True)


def _is_full(block: Block) -> bool:
    match block:
        case Facts():
            return bool(block.values)
        case Table():
            return bool(block.rows)
        case Chart():
            return bool(block.traces)
        case Code() | Words():
            return bool(block.text)


def _draw(block: Block, is_served: bool) -> Markup:
    macros = _environment().get_template("blocks.html").module
    return Markup(getattr(macros, type(block).__name__.lower())(block, is_served))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(_HERE, package_path=""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"columns_of": columns_of, "chart_values": chart_values}
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "allow_nan": False}
    return environment


@cache
def _file(name: str) -> str:
    return files(_HERE).joinpath(name).read_text(encoding="utf-8")
