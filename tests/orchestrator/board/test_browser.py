"""The board in a real browser: the list, a query, a long list scrolled, keys alone, paper, an empty console.

Skipped without Chromium. Alone: pytest tests/orchestrator/board/test_browser.py
"""

from pathlib import Path

import pytest

from benchmarks.generated_registry import NUM_TRIALS, fill
from orchestrator.board.app import build_app
from orchestrator.registry import Registry
from orchestrator.results import MetricEvent
from orchestrator.run_states import RunState
from tests.browser import Browser
from tests.orchestrator.registry.samples import new_run
from tests.orchestrator.reports.samples import add_pretraining, add_sweep
from tests.web_server import answering

NAMES = "[...document.querySelectorAll('#whole a')].map((link) => link.textContent)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_list_and_its_pages_are_drawn_without_complaint(
    tmp_path: Path, browser: Browser, width: int, scheme: str
) -> None:
    browser.look_as(width=width, height=800, scheme=scheme)
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        pretraining, sweep = add_pretraining(registry), add_sweep(registry, tmp_path)
        with answering(build_app(registry)) as url:
            for path, is_there in (
                ("/", "document.querySelectorAll('#whole input').length === 2"),
                ("/?filter=kind+%3D+%27sweep%27", "document.querySelectorAll('#whole input').length === 1"),
                (f"/runs/{sweep}", "document.querySelectorAll('.chart .main-svg').length > 5"),
                ("/tasks/own", "document.querySelectorAll('.chart .main-svg').length > 0"),
                (f"/compare?runs={pretraining},{sweep}", "document.querySelectorAll('h2').length > 1"),
            ):
                browser.leave()
                browser.open(url + path)
                browser.wait_for(is_there)
                assert browser.console == [], path
                assert browser.width_beyond_screen() <= 0, path
                assert browser.weak_contrasts() == [], path


def test_a_wrong_query_is_told_below_it_and_the_next_one_shows_runs(tmp_path: Path, browser: Browser) -> None:
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        add_pretraining(registry)
        with answering(build_app(registry)) as url:
            browser.open(url)
            browser.wait_for("document.querySelectorAll('#whole input').length === 1")
            browser.value("document.getElementById('filter').focus()")
            browser.type("name = ")
            browser.press("Enter", 13)
            browser.wait_for("document.getElementById('problem').textContent.includes('too early')")
            browser.type("'wiki'")
            browser.press("Enter", 13)
            browser.wait_for("document.getElementById('problem').textContent === ''")
            browser.wait_for("document.querySelectorAll('#whole input').length === 1")
            assert browser.value("location.search") == "?filter=name+%3D+%27wiki%27"


@pytest.mark.parametrize("width", [360, 1280])
def test_archived_runs_and_an_order_by_score_are_asked_for_and_stay_in_the_address(
    tmp_path: Path, browser: Browser, width: int
) -> None:
    browser.look_as(width=width, height=800, scheme="light")
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        for number, score in enumerate((0.7, 0.9, 0.8)):
            run_id = new_run(registry, name=f"run {number}", metric="f1")
            registry.metrics.record(run_id, [MetricEvent(1, "validation", {"f1": score})])
        registry.annotations.set_flag(run_id, "archived")
        with answering(build_app(registry)) as url:
            browser.leave()
            browser.open(url)
            browser.wait_for("document.querySelectorAll('#whole input').length === 2")
            browser.value("document.getElementById('archived').click()")
            browser.wait_for("document.querySelectorAll('#whole input').length === 3")
            heading = "[...document.querySelectorAll('#head button')].find((one) => one.textContent === 'score')"
            for address, names in (
                ("?sort=-score&archived=yes", ["run 1", "run 2", "run 0"]),
                ("?sort=score&archived=yes", ["run 0", "run 2", "run 1"]),
            ):
                browser.value(f"{heading}.click()")
                browser.wait_for(f"JSON.stringify({NAMES}) === JSON.stringify({names})")
                assert browser.value("location.search") == address
            browser.open(f"{url}/?sort=-score&archived=yes")
            browser.wait_for(f"JSON.stringify({NAMES}) === JSON.stringify(['run 1', 'run 2', 'run 0'])")
            assert browser.value("document.getElementById('archived').checked")
            assert browser.value(f"{heading}.parentElement.getAttribute('aria-sort')") == "descending"
            assert browser.width_beyond_screen() <= 0
            assert browser.console == []


def test_of_a_long_list_only_the_rows_in_sight_are_in_the_document(tmp_path: Path, browser: Browser) -> None:
    browser.look_as(width=1280, height=800, scheme="light")
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        for number in range(400):
            new_run(registry, name=f"run {number}")
        with answering(build_app(registry)) as url:
            browser.open(f"{url}/?sort=created_at")
            browser.wait_for(f"{NAMES}.includes('run 0')")
            assert 20 < browser.value("document.querySelectorAll('#whole .row').length") < 80
            browser.value("document.getElementById('window').scrollTop = 1e9")
            browser.wait_for(f"{NAMES}.includes('run 399')")
            assert 20 < browser.value("document.querySelectorAll('#whole .row').length") < 80


def test_chosen_runs_are_compared(tmp_path: Path, browser: Browser) -> None:
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        ids = {new_run(registry, name=name) for name in ("a", "b")}
        with answering(build_app(registry)) as url:
            browser.open(url)
            browser.wait_for("document.querySelectorAll('#whole input').length === 2")
            assert browser.value("document.getElementById('compare').disabled")
            browser.value("document.querySelectorAll('#whole input').forEach((box) => box.click())")
            browser.value("document.getElementById('compare').click()")
            browser.wait_for("document.title === '2 runs side by side'")
            assert set(browser.value("new URLSearchParams(location.search).get('runs')").split(",")) == ids


def test_the_page_of_a_run_at_work_shows_what_is_new(tmp_path: Path, browser: Browser) -> None:
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        run_id = new_run(registry)
        registry.lifecycle.start_attempt(run_id)
        with answering(build_app(registry)) as url:
            browser.open(f"{url}/runs/{run_id}")
            registry.tag(run_id, "looked-at")
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
    tmp_path: Path, browser: Browser, focused: str, is_seen: str
) -> None:
    browser.look_as(width=360, height=800, scheme="light")
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        run_id = new_run(registry)
        registry.lifecycle.start_attempt(run_id)
        splits = (("train", (1, 3)), ("validation", (1, 2)), ("test", (1,)))
        points = [MetricEvent(step, split, {"zloss": 1 / step}) for split, steps in splits for step in steps]
        registry.metrics.record(run_id, points)
        with answering(build_app(registry)) as url:
            browser.leave()
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
            assert browser.value("document.querySelectorAll('main details').length") == 2, "a chart before the other"
            assert browser.value("[...document.querySelectorAll('main details')].map((one) => one.open)") == [
                False,
                True,
            ]
            assert browser.value(f"[...{steps}].map((cell) => cell.textContent)") == ["9", "3", "1"]
            heading = "[...document.querySelectorAll('main details')].at(-1).querySelectorAll('th')[1]"
            assert browser.value(f"{heading}.getAttribute('aria-sort')") == "descending"
            assert browser.value(is_seen), browser.value("document.activeElement.outerHTML.slice(0, 200)")
            assert browser.console == []


WHITE = "rgb(255, 255, 255)"
ALL_WIDE = "[...document.querySelectorAll('.wide')]"
FOCUSED = "document.activeElement.textContent || document.activeElement.id || document.activeElement.tagName"
TAB, ENTER, SPACE, UP, DOWN = ("Tab", 9), ("Enter", 13), (" ", 32), ("ArrowUp", 38), ("ArrowDown", 40)


def focus_is_seen(browser: Browser) -> bool:
    """Whether what has the focus has a line around it."""
    style = "getComputedStyle(document.activeElement)"
    return bool(browser.value(f"{style}.outlineStyle !== 'none' && parseFloat({style}.outlineWidth) >= 2"))


def test_runs_are_chosen_compared_and_opened_by_the_keyboard_alone(tmp_path: Path, browser: Browser) -> None:
    browser.look_as(width=1280, height=800, scheme="light")
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        for name in ("first", "second"):
            new_run(registry, name=name)
        with answering(build_app(registry)) as url:
            browser.leave()
            browser.open(f"{url}/?sort=created_at")
            browser.wait_for("document.querySelectorAll('#whole input').length === 2")
            order = []
            for _ in range(30):
                browser.press(*TAB)
                order.append(browser.value(FOCUSED))
                assert focus_is_seen(browser), order
                if order[-1] == "first":
                    break
            assert order[0] == "Skip to the list"
            assert order.index("filter") < order.index("name") < order.index("first")
            browser.press(*DOWN)
            assert browser.value(FOCUSED) == "second"
            browser.press(*UP)
            assert browser.value(FOCUSED) == "first"
            for _ in range(2):  # from the link back to the box beside it
                browser.press("Tab", 9, modifiers=8)
                if browser.value("document.activeElement.type") == "checkbox":
                    break
            browser.press(*SPACE)
            browser.press(*DOWN)
            browser.press(*SPACE)
            assert browser.value("document.querySelectorAll('#whole input:checked').length") == 2
            browser.value("document.getElementById('compare').focus()")
            browser.press(*ENTER)
            browser.wait_for("document.title === '2 runs side by side' && document.readyState === 'complete'")
            browser.press(*TAB)
            assert browser.value(FOCUSED) == "Skip to the content"
            browser.press(*ENTER)
            browser.wait_for("document.activeElement.id === 'content'")
            links = "[...document.querySelectorAll('main td a')].map((link) => link.getAttribute('href'))"
            assert len(browser.value(links)) == 2
            assert browser.value(links)[0].startswith("/runs/")
            assert browser.console == []


def test_the_row_with_the_focus_stays_while_the_list_is_read_again(tmp_path: Path, browser: Browser) -> None:
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        ids = [new_run(registry, name=f"run {number}", task="own") for number in range(3)]
        with answering(build_app(registry)) as url:
            browser.open(f"{url}/?sort=created_at")
            browser.wait_for("document.querySelectorAll('#whole input').length === 3")
            browser.value("document.querySelectorAll('#whole .row')[1].querySelectorAll('a')[1].focus()")
            registry.lifecycle.start_attempt(ids[1])
            browser.value("fetchPage(0)")
            browser.wait_for("document.querySelectorAll('#whole .row')[1].textContent.includes('RUNNING')")
            assert browser.value("document.activeElement.closest('.row').getAttribute('aria-rowindex')") == "3"


def test_every_page_prints_light_and_uncut(tmp_path: Path, browser: Browser) -> None:
    """A4 between the browser's own margins is 717 pixels wide."""
    browser.look_as(width=717, height=1000, scheme="dark")
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        pretraining, sweep = add_pretraining(registry), add_sweep(registry, tmp_path)
        for number in range(100):
            new_run(registry, name=f"run {number}")
        pages = {"/": 2, f"/runs/{sweep}": 40, f"/compare?runs={pretraining},{sweep}": 10, "/tasks/own": 6}
        with answering(build_app(registry)) as url:
            for path, most_sheets in pages.items():
                browser.leave()
                browser.open(url + path)
                browser.wait_for("document.querySelector('main').textContent.length > 100")
                pdf = browser.printed()
                assert pdf.startswith(b"%PDF"), path
                assert 1 <= pdf.count(b"/Type /Page\n") <= most_sheets, path
                with browser.on_paper():
                    assert browser.width_beyond_screen() <= 0, path
                    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", (
                        path
                    )
                    cut = (
                        "[...document.querySelectorAll('.wide')].filter((box) => box.scrollWidth > box.clientWidth + 1)"
                    )
                    assert browser.value(f"{cut}.length") == 0, path
                assert browser.console == [], path


def test_every_chart_can_be_read_as_a_table(tmp_path: Path, browser: Browser) -> None:
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        sweep = add_sweep(registry, tmp_path)
        with answering(build_app(registry)) as url:
            for path in (f"/runs/{sweep}", "/tasks/own"):
                browser.open(url + path)
                browser.wait_for("document.querySelectorAll('.chart .main-svg').length > 0")
                without = (
                    "[...document.querySelectorAll('figure')].filter((each) => !each.querySelector('details table'))"
                )
                assert browser.value(f"{without}.map((each) => each.innerText)") == [], path
                unnamed = "[...document.querySelectorAll('.chart')].filter((each) => !each.getAttribute('aria-label'))"
                assert browser.value(f"{unnamed}.length") == 0, path


def test_no_button_of_a_chart_sends_it_to_a_server(tmp_path: Path, browser: Browser) -> None:
    buttons = "[...document.querySelectorAll('.chart .modebar-btn')]"
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        sweep = add_sweep(registry, tmp_path)
        with answering(build_app(registry)) as url:
            for path in (f"/runs/{sweep}", "/tasks/own"):
                browser.open(url + path)
                browser.wait_for(f"{buttons}.length > 0")
                titles = set(browser.value(f"{buttons}.map((button) => button.dataset.title)"))
                assert "Download plot as a PNG" in titles, path
                assert [one for one in titles if "cloud" in one.lower() or "share" in one.lower()] == [], path
                assert browser.value(f"{buttons}.filter((one) => one.href).length") == 0, path
                contexts = "[...document.querySelectorAll('.chart')].map((chart) => chart._context)"
                assert browser.value(f"{contexts}.map((one) => one.plotlyServerURL || one.showSendToCloud)") == [
                    False
                ] * browser.value(f"{contexts}.length"), path


def test_a_list_of_thousands_is_scrolled_through_with_few_requests(tmp_path: Path, browser: Browser) -> None:
    browser.look_as(width=1280, height=800, scheme="light")
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        fill(registry, num_sweeps=150)
        with answering(build_app(registry)) as url:
            browser.open(f"{url}/?trials=yes&sort=created_at")
            browser.wait_for("document.querySelectorAll('#whole input').length > 20")
            browser.value(
                """new Promise((done) => {
                  const box = document.getElementById("window");
                  let left = 60;
                  requestAnimationFrame(function frame() {
                    box.scrollTop += box.scrollHeight / 60;
                    if (--left) requestAnimationFrame(frame); else done();
                  });
                })"""
            )
            browser.wait_for(f"{NAMES}.length > 20 && document.querySelectorAll('#whole .dim').length === 0")
            last = browser.value("[...document.querySelectorAll('#whole .row')].at(-1).getAttribute('aria-rowindex')")
            assert int(last) == 150 * (NUM_TRIALS + 1) + 1
            asked = "performance.getEntriesByType('resource').filter((one) => one.name.includes('/rows'))"
            assert browser.value(f"{asked}.length") <= 32
            assert browser.value(f"{asked}.filter((one) => one.name.includes('count=yes')).length") <= 3


def test_a_phone_shows_the_score_and_the_state_beside_the_name(tmp_path: Path, browser: Browser) -> None:
    browser.look_as(width=390, height=800, scheme="light")
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        run_id = new_run(registry, kind="sweep", task="sst2", metric="accuracy")
        registry.lifecycle.start_attempt(run_id)
        registry.metrics.record(run_id, [MetricEvent(1, "validation", {"accuracy": 0.91})], final=True)
        with answering(build_app(registry)) as url:
            browser.leave()
            browser.open(url)
            browser.wait_for("document.querySelectorAll('#whole .row a').length > 0")
            for row in ("#head", "#whole .row"):
                cells = f"[...document.querySelectorAll('{row} > *')].filter((cell) => cell.offsetWidth)"
                places = f"{cells}.sort((a, b) => a.offsetLeft - b.offsetLeft)"
                shown = browser.value(f"{places}.slice(1, 4).map((cell) => cell.textContent)")
                headings, values = ["name", "score", "state"], ["sample", "0.9100 accuracy", "RUNNING"]
                assert shown == (headings if row == "#head" else values)
                right = "document.getElementById('window').getBoundingClientRect().right"
                assert browser.value(f"{places}[3].getBoundingClientRect().right < {right}"), "a cut state"
            assert browser.console == []
