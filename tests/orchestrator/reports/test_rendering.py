"""Pages as HTML: what is escaped, what is left out, and what a real browser makes of them.

Alone: pytest tests/orchestrator/reports/test_rendering.py
"""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from orchestrator.reports.charts import Spread, count_matrix, learning_curves, score_by_setting, seed_spread
from orchestrator.reports.page_blocks import Cell, Chart, Code, Facts, Page, Section, Table, Words
from orchestrator.reports.pages import telling_columns
from orchestrator.reports.rendering import chart_values, columns_of, render
from tests.browser import Browser
from tests.orchestrator.reports.samples import HOSTILE

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


def open_page(page: Page, folder: Path, browser: Browser) -> None:
    """Open a page of a file."""
    path = folder / "page.html"
    path.write_text(render(page))
    browser.console.clear()
    browser.open(path.as_uri())


def test_no_text_becomes_markup() -> None:
    plain = Outline(without_plotly(render(HOSTILE_PAGE))).tags
    harmless = Page("a", "b", [Section("c", [Words("d")])])
    assert plain.count("title") == 1
    assert plain.count("script") == Outline(render(harmless)).tags.count("script") + 2  # one for each chart
    assert "document.title='taken'</script>" not in without_plotly(render(HOSTILE_PAGE))


def test_sections_without_content_are_left_out() -> None:
    page = Page(
        "a",
        "b",
        [Section("empty", [Facts({}), Table(["x"], []), Code(""), Chart("c", [])]), Section("d", [Words("e")])],
    )
    html = render(page)
    assert "empty<" not in html
    assert "<h2>d</h2>" in html


def test_a_page_without_charts_carries_no_library() -> None:
    assert len(render(Page("a", "b", [Section("c", [Words("d")])]))) < 20_000


def test_what_json_cannot_hold_becomes_null() -> None:
    chart = learning_curves("loss", {"train": [(0, 1.0), (1, float("nan")), (2, float("inf"))]})
    assert chart_values(chart)["traces"][0]["y"] == [1.0, None, None]


def test_a_column_of_numbers_is_sorted_by_value_and_shown_with_the_same_digits() -> None:
    rows = [{"metrics.f1": 0.5, "name": Cell("a", "runs/a", sorts_by=2)}, {"name": "b"}]
    f1, name = columns_of(Table(["metrics.f1", "name"], rows))
    assert (f1.heading, f1.texts, f1.is_number, f1.sorts_by) == ("f1", ["0.5000", "–"], True, [0.5, None])
    assert (name.is_number, name.texts, name.sorts_by, name.paths) == (False, ["a", "b"], [2, None], ["runs/a", ""])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_a_browser_draws_every_chart_and_complains_of_nothing(
    tmp_path: Path, browser: Browser, width: int, scheme: str
) -> None:
    """Pages of runs are looked at as the board shows them."""
    browser.look_as(width=width, height=800, scheme=scheme)
    open_page(HOSTILE_PAGE, tmp_path, browser)
    browser.wait_for("document.querySelectorAll('.chart .main-svg').length >= 2")
    assert browser.console == []
    assert browser.value("document.title") == HOSTILE_PAGE.title
    assert browser.width_beyond_screen() <= 0
    assert browser.weak_contrasts() == []


INSIDE = """[...document.querySelectorAll('.chart')].flatMap((chart) => {
  const edge = chart.getBoundingClientRect();
  return [...chart.querySelectorAll('.annotation-text, .ytick text')]
    .map((label) => [label.textContent, label.getBoundingClientRect()])
    .filter(([, box]) => box.left < edge.left || box.right > edge.right).map(([text]) => text);
})"""
"""Script: labels that a chart's edge cuts."""
OVERLAPS = """[...document.querySelectorAll('.chart')].flatMap((chart) => {
  const labels = [...chart.querySelectorAll('.annotation-text, .xtitle, .legendtext')];
  const boxes = labels.map((label) => label.getBoundingClientRect());
  return labels.filter((_, n) => boxes.some((other, m) => m < n && other.left < boxes[n].right
    && boxes[n].left < other.right && other.top < boxes[n].bottom && boxes[n].top < other.bottom))
    .map((label) => label.textContent);
})"""
"""Script: labels that lie over another one of their chart."""


def test_labels_of_a_chart_are_whole_and_apart_on_a_telephone(tmp_path: Path, browser: Browser) -> None:
    label = "init_from demo/pretraining@1, learning_rate"
    rows = [
        {"trial": f"trial {n}", "score": 0.5 + n / 10, "init_from": start, "learning_rate": rate}
        for n, (start, rate) in enumerate([("demo/pretraining@1", 0.001), ("random", 0.002), ("random", 0.001)])
    ]
    charts = [
        seed_spread([Spread(f"{label} {rate}, size tiny", [0.4, 0.8], 0.6) for rate in (0.001, 0.002)], "accuracy"),
        score_by_setting(rows, "init_from", "accuracy"),
    ]
    for width in (375, 1280):
        browser.look_as(width=width, height=800, scheme="light")
        open_page(Page("page", "", [Section("all", charts)]), tmp_path, browser)
        browser.wait_for("document.querySelectorAll('.chart .main-svg').length > 3")
        assert browser.value(INSIDE) == []
        assert browser.value(OVERLAPS) == []
        assert browser.value("document.querySelector('.nsewdrag').getBoundingClientRect().width") > 0.7 * min(
            width, 900
        )
        assert browser.width_beyond_screen() <= 0


def test_the_table_of_several_groups_of_a_task_fits_a_small_window(tmp_path: Path, browser: Browser) -> None:
    common = {"n": 1, "baseline": 0.0133, "size": "tiny", "notes": "of 2 runs 1 failed", "may_be_best": ""}
    common |= dict.fromkeys(("low", "high", "sd", "recipe"), None)
    rows = [
        {**common, "rank": rank, "mean": mean, "best": mean, "test": mean, "init_from": start, "model": "demo/kinds@1"}
        | {"run": f"16b3368dc2a{rank}", "group": f"856d0128.38b2445{rank}"}
        for rank, mean, start in ((1, 0.84, "demo/pretraining@1"), (2, 0.4, "random"))
    ]
    browser.look_as(width=900, height=800, scheme="light")
    open_page(Page("page", "", [Section("all", [Table(telling_columns(rows)[0], rows)])]), tmp_path, browser)
    wide = "document.querySelector('.wide')"
    assert browser.value(f"{wide}.scrollWidth - {wide}.clientWidth") <= 0


def test_a_heading_sorts_its_table_and_keeps_empty_cells_last(tmp_path: Path, browser: Browser) -> None:
    rows = [{"score": score} for score in (0.5, None, 0.9, 0.1)]
    open_page(Page("a", "b", [Section("c", [Table(["score"], rows)])]), tmp_path, browser)
    for order in ("0.1000 0.5000 0.9000 –", "0.9000 0.5000 0.1000 –"):
        browser.value("document.querySelector('th button').click()")
        assert browser.value("[...document.querySelectorAll('td')].map((cell) => cell.textContent).join(' ')") == order


def test_charts_follow_the_colors_that_a_person_has_chosen(tmp_path: Path, browser: Browser) -> None:
    browser.look_as(width=1280, height=800, scheme="light")
    open_page(HOSTILE_PAGE, tmp_path, browser)
    color = "getComputedStyle(document.querySelector('.xtick text')).fill"
    browser.wait_for("document.querySelectorAll('.xtick text').length > 0")
    by_day = browser.value(color)
    browser.look_as(width=1280, height=800, scheme="dark")
    browser.wait_for(f"{color} !== '{by_day}'")
    assert browser.console == []
