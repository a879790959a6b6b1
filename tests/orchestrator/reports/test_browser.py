"""The board in a real browser: the list, a query, a run at work, keys alone, paper, an empty console.

Skipped without Chromium. Alone: pytest tests/orchestrator/reports/test_browser.py
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.base.results import MetricEvent
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from orchestrator.reports.board import build_app
from tests.browser import Browser
from tests.orchestrator.registry.samples import new_run
from tests.orchestrator.reports.samples import add_pretraining, add_sweep
from tests.web_server import answering

NAMES = "[...document.querySelectorAll('tbody a[href^=\"/runs\"]')].map((link) => link.textContent)"
FOCUSED = "document.activeElement.textContent || document.activeElement.name || document.activeElement.tagName"
TAB, ENTER, SPACE = ("Tab", 9), ("Enter", 13), (" ", 32)


@pytest.fixture
def url(registry: Registry, browser: Browser) -> Iterator[str]:
    """Address of the board; the browser leaves it before it ends."""
    with answering(build_app(registry)) as address:
        browser.leave()
        yield address
        browser.leave()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_list_and_its_pages_are_drawn_without_complaint(
    tmp_path: Path, registry: Registry, url: str, browser: Browser, width: int, scheme: str
) -> None:
    browser.look_as(width=width, height=800, scheme=scheme)
    pretraining, sweep = add_pretraining(registry), add_sweep(registry, tmp_path)
    for path, is_there in (
        ("/", f"{NAMES}.length === 2"),
        ("/?query=kind+%3D+%27sweep%27", f"{NAMES}.length === 1"),
        (f"/runs/{sweep}", "document.querySelectorAll('.chart .main-svg').length > 5"),
        ("/tasks/own", "document.querySelectorAll('.chart .main-svg').length > 0"),
        (f"/compare?run={pretraining}&run={sweep}", "document.querySelectorAll('h2').length > 1"),
    ):
        browser.leave()
        browser.open(url + path)
        browser.wait_for(is_there)
        assert browser.console == [], path
        assert browser.width_beyond_screen() <= 0, path
        assert browser.weak_contrasts() == [], path


def test_a_query_is_typed_and_stays_in_the_address(registry: Registry, url: str, browser: Browser) -> None:
    for name in ("wiki", "books"):
        new_run(registry, name=name)
    browser.open(url)
    browser.value("document.querySelector('[name=query]').focus()")
    browser.type("name = 'wiki'")
    browser.press(*ENTER)
    browser.wait_for(f"JSON.stringify({NAMES}) === JSON.stringify(['wiki'])")
    assert browser.value("new URLSearchParams(location.search).get('query')") == "name = 'wiki'"
    assert browser.value("document.querySelector('[name=query]').value") == "name = 'wiki'"


def test_a_long_list_is_sorted_as_a_whole_and_shows_more_at_its_end(
    registry: Registry, url: str, browser: Browser
) -> None:
    for number in range(150):
        new_run(registry, name=f"run {number}")
    shown = f"{NAMES}.length - document.querySelectorAll('tr[hidden]').length"
    browser.open(url)
    assert (browser.value(f"{NAMES}.length"), browser.value(shown)) == (150, 100)
    browser.value("[...document.querySelectorAll('th button')].find((one) => one.textContent === 'name').click()")
    assert browser.value(NAMES) == [f"run {number}" for number in range(150)]
    assert browser.value(shown) == 100
    browser.value("document.querySelector('.wide').scrollTop = 1e6")
    browser.wait_for(f"{shown} === 150")


def test_what_a_reader_sorted_chose_and_typed_stays_while_the_list_goes_on(
    registry: Registry, url: str, browser: Browser
) -> None:
    ids = [new_run(registry, name=f"run {number}") for number in (2, 1, 3)]
    browser.open(url)
    browser.value("[...document.querySelectorAll('th button')].find((one) => one.textContent === 'name').click()")
    browser.value(f"document.querySelector('[value=\"{ids[0]}\"]').click()")
    browser.value("document.querySelector('[name=query]').focus()")
    browser.type("task = ")
    registry.lifecycle.start_attempt(ids[1])
    new_run(registry, name="run 0")
    browser.value("refresh()")
    assert browser.value(NAMES) == ["run 0", "run 1", "run 2", "run 3"]
    assert browser.value("document.querySelectorAll('td.busy').length") == 1
    assert browser.value("[...document.querySelectorAll('td :checked')].map((one) => one.value)") == [ids[0]]
    assert browser.value("document.querySelector('[name=query]').value") == "task = "
    assert browser.console == []


def test_the_page_of_a_run_at_work_shows_what_is_new(registry: Registry, url: str, browser: Browser) -> None:
    run_id = new_run(registry)
    registry.lifecycle.start_attempt(run_id)
    browser.open(f"{url}/runs/{run_id}")
    registry.annotations.tag(run_id, ["looked-at"])
    registry.lifecycle.finish(run_id, RunState.COMPLETED)
    browser.value("refresh()")
    shown = browser.value("document.body.innerText")
    assert "looked-at" in shown
    assert "COMPLETED" in shown


@pytest.mark.parametrize(
    ("focused", "is_seen"),
    [
        ("main details summary", "document.activeElement.matches('summary')"),
        ("main details th:nth-child(2) button", "document.activeElement.textContent === 'last step'"),
        ("main .copy", "document.activeElement.matches('.copy')"),
        ("nav a:last-child", "document.activeElement.textContent === 'Make it again'"),
    ],
)
def test_what_a_reader_opened_sorted_and_is_at_stays_while_a_run_at_work_goes_on(
    registry: Registry, url: str, browser: Browser, focused: str, is_seen: str
) -> None:
    browser.look_as(width=360, height=800, scheme="light")
    run_id = new_run(registry)
    registry.lifecycle.start_attempt(run_id)
    splits = (("train", (1, 3)), ("validation", (1, 2)), ("test", (1,)))
    points = [MetricEvent(step, split, {"zloss": 1 / step}) for split, steps in splits for step in steps]
    registry.metrics.record(run_id, points)
    browser.open(f"{url}/runs/{run_id}")
    browser.value("document.querySelector('main details').open = true")
    for _ in range(2):
        browser.value("[...document.querySelectorAll('main details th button')][1].click()")
    steps = "[...document.querySelectorAll('main details')].at(-1).querySelectorAll('td:nth-child(2)')"
    assert browser.value(f"[...{steps}].map((cell) => cell.textContent)") == ["3", "2", "1"]
    browser.value(f"document.querySelector({focused!r}).focus()")
    assert browser.value(is_seen)
    new = [MetricEvent(step, "validation", {"zloss": 1 / step, "aloss": 1 / step}) for step in (8, 9)]
    registry.metrics.record(run_id, new)
    browser.value("refresh()")
    assert browser.value("[...document.querySelectorAll('main details')].map((one) => one.open)") == [False, True]
    assert browser.value(f"[...{steps}].map((cell) => cell.textContent)") == ["9", "3", "1"]
    assert browser.value(is_seen), browser.value("document.activeElement.outerHTML.slice(0, 200)")
    assert browser.console == []


def test_runs_are_chosen_compared_and_opened_by_the_keyboard_alone(
    registry: Registry, url: str, browser: Browser
) -> None:
    browser.look_as(width=1280, height=800, scheme="light")
    ids = [new_run(registry, name=name) for name in ("first", "second")]
    style = "getComputedStyle(document.activeElement)"
    is_seen = f"{style}.outlineStyle !== 'none' && parseFloat({style}.outlineWidth) >= 2"
    browser.open(url)
    order: list[str] = []
    while len(order) < 40 and order[-1:] != ["first"]:
        browser.press(*TAB)
        order.append(browser.value(FOCUSED))
        assert browser.value(is_seen), order
        if order[-1] == "run":
            browser.press(*SPACE)
    assert order[0] == "Skip to the content"
    assert order.index("query") < order.index("name") < order.index("second") < order.index("first")
    browser.value("document.querySelector('button[form=compare]').focus()")
    browser.press(*ENTER)
    browser.wait_for("document.title === '2 runs side by side' && document.readyState === 'complete'")
    assert browser.value("new URLSearchParams(location.search).getAll('run')") == ids[::-1]
    browser.press(*TAB)
    browser.press(*ENTER)
    browser.wait_for("document.activeElement.id === 'content'")
    assert browser.value(NAMES) == ["second", "first"]
    assert browser.console == []


def test_every_page_prints_light_and_uncut(tmp_path: Path, registry: Registry, url: str, browser: Browser) -> None:
    """A4 between the browser's own margins is 717 pixels wide."""
    browser.look_as(width=717, height=1000, scheme="dark")
    pretraining, sweep = add_pretraining(registry), add_sweep(registry, tmp_path)
    for number in range(100):
        new_run(registry, name=f"run {number}")
    pages = {"/": 5, f"/runs/{sweep}": 40, f"/compare?run={pretraining}&run={sweep}": 10, "/tasks/own": 6}
    cut = "[...document.querySelectorAll('.wide')].filter((box) => box.scrollWidth > box.clientWidth + 1)"
    for path, most_sheets in pages.items():
        browser.leave()
        browser.open(url + path)
        browser.wait_for("document.querySelector('main').textContent.length > 100")
        pdf = browser.printed()
        assert 1 <= pdf.count(b"/Type /Page\n") <= most_sheets, path
        with browser.on_paper():
            assert browser.width_beyond_screen() <= 0, path
            assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", path
            assert browser.value(f"{cut}.length") == 0, path
        assert browser.console == [], path


def test_every_chart_can_be_read_as_a_table_and_no_button_sends_it_to_a_server(
    tmp_path: Path, registry: Registry, url: str, browser: Browser
) -> None:
    buttons, charts = "[...document.querySelectorAll('.modebar-btn')]", "[...document.querySelectorAll('.chart')]"
    sweep = add_sweep(registry, tmp_path)
    for path in (f"/runs/{sweep}", "/tasks/own"):
        browser.leave()
        browser.open(url + path)
        browser.wait_for(f"{buttons}.length > 0")
        figures = "[...document.querySelectorAll('figure')].filter((each) => !each.querySelector('details table'))"
        assert browser.value(f"{figures}.length") == 0, path
        assert browser.value(f"{charts}.filter((each) => !each.getAttribute('aria-label')).length") == 0, path
        titles = set(browser.value(f"{buttons}.map((button) => button.dataset.title)"))
        assert "Download plot as a PNG" in titles, path
        assert [one for one in titles if "cloud" in one.lower() or "share" in one.lower()] == [], path
        contexts = f"{charts}.map((chart) => chart._context)"
        assert not any(browser.value(f"{contexts}.map((one) => one.plotlyServerURL || one.showSendToCloud)")), path


def test_a_phone_shows_the_state_and_the_score_beside_the_name(registry: Registry, url: str, browser: Browser) -> None:
    browser.look_as(width=390, height=800, scheme="light")
    run_id = new_run(registry, kind="sweep", task="sst2", metric="accuracy")
    registry.lifecycle.start_attempt(run_id)
    registry.metrics.record(run_id, [MetricEvent(1, "validation", {"accuracy": 0.91})], final=True)
    browser.open(url)
    for row, texts in (("thead", ["name", "state", "score"]), ("tbody", ["sample", "RUNNING", "0.9100"])):
        cells = f"[...document.querySelectorAll('{row} tr > *')].slice(1, 4)"
        assert browser.value(f"{cells}.map((cell) => cell.textContent)") == texts
        right = "document.querySelector('.wide').getBoundingClientRect().right"
        assert browser.value(f"{cells}.every((cell) => cell.getBoundingClientRect().right <= {right})")
