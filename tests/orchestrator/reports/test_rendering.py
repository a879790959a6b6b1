"""Pages as HTML: what is escaped, what is left out, and what a real browser makes of them.

Alone: pytest tests/orchestrator/reports/test_rendering.py
"""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from orchestrator.registry import Registry
from orchestrator.reports.blocks import Chart, Code, Facts, Page, Section, Table, Words
from orchestrator.reports.charts import count_matrix, learning_curves
from orchestrator.reports.rendering import chart_values, columns_of, render
from orchestrator.reports.run_page import run_page
from tests.browser import Browser
from tests.orchestrator.reports.samples import HOSTILE, add_pretraining, add_sweep

HOSTILE_PAGE = Page(
    HOSTILE,
    HOSTILE,
    [
        Section(
            HOSTILE,
            [
                Facts({HOSTILE: HOSTILE}),
                Table([HOSTILE], [{HOSTILE: HOSTILE}]),
                count_matrix(HOSTILE, [HOSTILE, "other"], [[1, 2], [3, 4]]),
                learning_curves(HOSTILE, {HOSTILE: [(0, 1.0), (1, float("nan"))]}),
                Code(HOSTILE),
                Words(HOSTILE),
            ],
        )
    ],
)


class Outline(HTMLParser):
    """Counts of elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


def without_plotly(html: str) -> str:
    """The page without the library, which is 4.8 MB."""
    return re.sub(r"<script>/\*\*\s+\* plotly.*?</script>", "", html, flags=re.DOTALL)


def test_no_text_becomes_markup() -> None:
    plain = Outline(without_plotly(render(HOSTILE_PAGE))).tags
    harmless = Page("a", "b", [Section("c", [Words("d")])])
    assert plain.count("title") == 1
    assert plain.count("script") == Outline(render(harmless)).tags.count("script") + 2  # one for each chart
    assert "document.title='taken'</script>" not in without_plotly(render(HOSTILE_PAGE))


def test_sections_without_content_are_left_out() -> None:
    page = Page(
        "a", "b", [Section("gone", [Facts({}), Table(["x"], []), Code(""), Chart("c", [])]), Section("d", [Words("e")])]
    )
    html = render(page)
    assert "gone" not in html
    assert "<h2>d</h2>" in html


def test_a_page_without_charts_carries_no_library() -> None:
    assert len(render(Page("a", "b", [Section("c", [Words("d")])]))) < 20_000


def test_what_json_cannot_hold_becomes_null() -> None:
    chart = learning_curves("loss", {"train": [(0, 1.0), (1, float("nan")), (2, float("inf"))]})
    assert chart_values(chart)["traces"][0]["y"] == [1.0, None, None]


def test_a_column_of_numbers_is_sorted_by_value_and_shown_with_the_same_digits() -> None:
    columns = columns_of(Table(["metrics.f1", "name"], [{"metrics.f1": 0.5, "name": "a"}, {"name": "b"}]))
    f1, name = columns
    assert (f1.heading, f1.texts, f1.is_number, f1.sorts_by) == ("f1", ["0.5000", "–"], True, [0.5, None])
    assert not name.is_number


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_a_browser_draws_every_chart_and_complains_of_nothing(
    tmp_path: Path, browser: Browser, width: int, scheme: str
) -> None:
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        pages = {
            "pretraining": run_page(registry, registry.run(add_pretraining(registry))),
            "sweep": run_page(registry, registry.run(add_sweep(registry, tmp_path))),
            "hostile": HOSTILE_PAGE,
        }
    browser.look_as(width=width, height=800, scheme=scheme)
    for name, page in pages.items():
        path = tmp_path / f"{name}.html"
        path.write_text(render(page))
        browser.console.clear()
        browser.open(path.as_uri())
        num_charts = sum(isinstance(block, Chart) for section in page.sections for block in section.blocks)
        assert num_charts > 0
        browser.wait_for(f"document.querySelectorAll('.chart .main-svg').length >= {num_charts}")
        assert browser.console == []
        assert browser.value("document.title") == page.title
        assert browser.width_beyond_screen() <= 0
        assert browser.weak_contrasts() == []


def test_a_heading_sorts_its_table_and_keeps_empty_cells_last(tmp_path: Path, browser: Browser) -> None:
    rows = [{"score": score} for score in (0.5, None, 0.9, 0.1)]
    path = tmp_path / "table.html"
    path.write_text(render(Page("a", "b", [Section("c", [Table(["score"], rows)])])))
    browser.open(path.as_uri())
    for order in ("0.1000 0.5000 0.9000 –", "0.9000 0.5000 0.1000 –"):
        browser.value("document.querySelector('th button').click()")
        assert browser.value("[...document.querySelectorAll('td')].map((cell) => cell.textContent).join(' ')") == order


def test_charts_follow_the_colors_that_a_person_has_chosen(tmp_path: Path, browser: Browser) -> None:
    path = tmp_path / "page.html"
    path.write_text(render(HOSTILE_PAGE))
    browser.look_as(width=1280, height=800, scheme="light")
    browser.console.clear()
    browser.open(path.as_uri())
    color = "getComputedStyle(document.querySelector('.xtick text')).fill"
    browser.wait_for("document.querySelectorAll('.xtick text').length > 0")
    by_day = browser.value(color)
    browser.look_as(width=1280, height=800, scheme="dark")
    browser.wait_for(f"{color} !== '{by_day}'")
    assert browser.console == []
