"""The board in a real browser: the list, a query, a long list scrolled, an empty console.

Skipped without Chromium. Alone: pytest tests/orchestrator/board/test_browser.py
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn

from orchestrator.board.app import build_app
from orchestrator.registry import Registry
from orchestrator.run_states import RunState
from orchestrator.web.guard import App
from orchestrator.web.server import listening
from tests.browser import Browser
from tests.orchestrator.registry.samples import new_run
from tests.orchestrator.reports.samples import add_pretraining, add_sweep

NAMES = "[...document.querySelectorAll('#whole a')].map((link) => link.textContent)"


@contextmanager
def answering(app: App) -> Iterator[str]:
    """Address of an application that answers in a thread meanwhile."""
    with listening("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


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
                browser.console.clear()
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
