"""The page of `orchestrator serve` in a browser: asking by keyboard, an empty console, a phone's width, both colors.

Skipped without Chromium. Alone: .venv/bin/pytest tests/orchestrator/inference/test_page.py
"""

import itertools
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import uvicorn

from orchestrator.base.errors import InputError
from orchestrator.inference.line_blocks import AnsweringModel, ModelInput
from orchestrator.inference.serving import build_app, load_answering
from tests.browser import Browser
from tests.orchestrator.tiny_models import save_pair_model
from tests.waiting import wait_until

TOKEN = "0123456789abcdef"
TEXT = "The cats rest beside a cold river that has averyveryveryveryveryveryveryveryveryveryveryverylongword in it."


class WithoutPlanes:
    """A model that refuses one word."""

    def __init__(self, answering: AnsweringModel) -> None:
        self._answering, self.abilities = answering, answering.abilities

    def answer(self, inputs: Sequence[ModelInput]) -> list[dict[str, Any]]:
        if any("planes" in str(read) for read in inputs):
            raise InputError("line 1: has planes in it")
        return self._answering.answer(inputs)


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Addresses of the same model, without and with a token."""
    answering = WithoutPlanes(load_answering(save_pair_model(tmp_path_factory.mktemp("models") / "m", ["no", "yes"])))

    servers, threads, found = [], [], []
    for token in (None, TOKEN):
        listener = socket.create_server(("127.0.0.1", 0))
        app = build_app("reviews/finetuning@1", answering, token)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        servers.append(server)
        threads.append(thread)
        found.append(f"http://127.0.0.1:{listener.getsockname()[1]}/")
    wait_until(lambda: all(server.started for server in servers), "the servers never answered")
    yield found[0], found[1]
    for server in servers:
        server.should_exit = True
    for thread in threads:
        thread.join()


@pytest.fixture(
    params=list(itertools.product((360, 1280), ("light", "dark"))), ids=lambda chosen: f"{chosen[0]}-{chosen[1]}"
)
def page(request: pytest.FixtureRequest, browser: Browser, urls: tuple[str, str]) -> Browser:
    """The page on a phone and on a desk, light and dark, with the model described."""
    width, scheme = request.param
    browser.console.clear()
    browser.look_as(width=width, height=800, scheme=scheme)
    browser.open(urls[0])
    browser.wait_for("document.title === 'reviews/finetuning@1'")
    return browser


def ask(page: Browser, text: str) -> None:
    """Ask by keyboard alone: the field has the focus when the page is there."""
    page.value("document.activeElement.select()")
    page.type(text)
    page.press("Enter", 13, modifiers=2)
    page.wait_for("document.getElementById('result').children.length > 0 && !document.getElementById('ask').disabled")


def test_a_question_by_keyboard_is_answered_with_every_score(page: Browser) -> None:
    ask(page, TEXT)
    shown = page.value("document.getElementById('result').innerText")
    assert shown.startswith("Answer\n")
    assert {"no", "yes", "As JSON"} <= {part for line in shown.splitlines() for part in line.split("\t")}
    assert page.console == []


def test_nothing_reaches_over_the_side_of_the_screen(page: Browser) -> None:
    ask(page, TEXT)
    page.value("document.querySelector('details').open = true")
    assert page.value("document.documentElement.scrollWidth") <= page.value("window.innerWidth")
    sides = "[...document.querySelectorAll('main *')].map((e) => e.getBoundingClientRect().right)"
    assert max(page.value(sides)) <= page.value("window.innerWidth")


def test_every_text_stands_out_from_what_is_behind_it(page: Browser) -> None:
    ask(page, "old stones near planes")  # a refusal, in its own color
    weak = page.weak_contrasts()
    ask(page, TEXT)
    page.value("document.querySelector('details').open = true")
    weak += page.weak_contrasts()
    assert weak == []


def test_a_page_that_needs_a_token_asks_for_it_and_keeps_it_to_itself(browser: Browser, urls: tuple[str, str]) -> None:
    browser.look_as(width=360, height=800, scheme="dark")
    browser.open(urls[1])
    browser.wait_for("!document.getElementById('token-part').hidden")
    assert browser.value("document.getElementById('token').type") == "password"
    browser.value("document.getElementById('token').focus()")
    ask(browser, TOKEN)
    browser.wait_for("document.title === 'reviews/finetuning@1'")
    assert TOKEN not in browser.value("location.href + document.body.innerText + JSON.stringify(localStorage)")
