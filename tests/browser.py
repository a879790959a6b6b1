"""Chromium without a window, driven by its DevTools protocol through two pipes: JSON messages, each ended by a zero."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE_S, wait_until

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

_ANSWER_S = 10.0
"""Time after which a question is taken for lost: a page that is left may take it along."""
_MIN_CONTRAST = 4.5
"""Contrast of text with what is behind it at least (WCAG 2.2, 1.4.3)."""
_CONTRASTS = """(() => {
  const light = (color) => {
    const parts = color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const isClear = (color) => /rgba\\(.*, 0\\)/.test(color);
  const texts = "h1, h2, p, a, label, textarea, button, th, td, dt, dd, span, summary, pre, figcaption";
  return [...document.querySelectorAll(texts)].map((element) => {
    let behind = element;
    while (isClear(getComputedStyle(behind).backgroundColor) && behind.parentElement) behind = behind.parentElement;
    const pair = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor].map(light);
    return [element.tagName, (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05)];
  });
})()"""
"""Script: the contrast of each element's text."""

_WITH_PIPES = """
import os, sys
commands, answers = (os.dup(os.dup(os.dup(int(number)))) for number in sys.argv[1:3])  # away from 3 and 4
os.dup2(commands, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Program that becomes the browser, which reads its commands from descriptor 3 and answers on 4."""


def find_browser() -> str | None:
    """Path of a browser of this kind; None where there is none."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Browser:
    """One page of a browser, and what its console said.

    Args:
        commands: the pipe that the browser reads.
        answers: the pipe that it writes.
    """

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._rest, self._number, self._session = b"", 0, ""
        self.console: list[str] = []
        self._is_loaded = False
        self._scheme: list[dict[str, str]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, within_s: float = PATIENCE_S, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; return its result. Raises: TimeoutError."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": parameters, **session}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        while (answer := self._read(within_s)).get("id") != self._number:
            self._note(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return dict(answer["result"])

    def look_as(self, *, width: int, height: int, scheme: str) -> None:
        """Be a screen of this size, of a person who has chosen `light` or `dark`."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=True)
        self._scheme = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=self._scheme)

    def open(self, url: str) -> None:
        """Load a page."""
        self._is_loaded = False
        self.call("Page.navigate", url=url)
        while not self._is_loaded:
            self._note(self._read())

    def leave(self) -> None:
        """Leave the page, which may still ask a server that has ended, and forget what its console said."""
        self.open("about:blank")
        self.console.clear()

    def value(self, script: str, within_s: float = PATIENCE_S) -> Any:
        """Value of an expression in the page, a promise's once it is there. Raises: TimeoutError."""
        found = self.call("Runtime.evaluate", within_s, expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, f"{script}: {found['exceptionDetails']}"
        return found["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Ask the page until a condition holds; a question that a page leaves unanswered as it goes is asked again."""

        def holds() -> bool:
            with suppress(TimeoutError):
                return bool(self.value(condition, _ANSWER_S))
            return False

        wait_until(holds, f"never: {condition}; look at the console of the page")

    def weak_contrasts(self) -> list[Any]:
        """Elements whose text does not stand out enough from what is behind it, with the contrast of each."""
        return [found for found in self.value(_CONTRASTS) if found[1] < _MIN_CONTRAST]

    def width_beyond_screen(self) -> int:
        """Number of pixels by which the page is wider than the screen."""
        return int(self.value("document.documentElement.scrollWidth - window.innerWidth"))

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int, modifiers: int = 0) -> None:
        """Press a key by its name and number; modifiers: 2 for Ctrl, 8 for Shift."""
        values = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        text = {"text": "\r"} if key == "Enter" and not modifiers else {}  # without it no form is sent
        self.call("Input.dispatchKeyEvent", type="keyDown", **values, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **values)

    def printed(self) -> bytes:
        """Print the page on A4; a PDF."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": False}
        return base64.b64decode(self.call("Page.printToPDF", **paper)["data"])

    @contextmanager
    def on_paper(self) -> Iterator[None]:
        """Be paper within the block, as wide as the screen."""
        self.value("dispatchEvent(new Event('beforeprint'))")
        self.call("Emulation.setEmulatedMedia", media="print", features=self._scheme)
        yield
        self.call("Emulation.setEmulatedMedia", media="", features=self._scheme)
        self.value("dispatchEvent(new Event('afterprint'))")

    def _read(self, within_s: float = PATIENCE_S) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._answers], [], [], within_s)[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self._answers, 1 << 20)
            assert piece, "the browser has ended"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        self._is_loaded |= event.get("method") == "Page.loadEventFired"
        if event.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.console.append(json.dumps(event["params"]))


@contextmanager
def open_browser(program: str, profile: Path) -> Iterator[Browser]:
    """Start a browser with a profile of its own; it ends with the block."""
    commands_out, commands = os.pipe()
    answers, answers_in = os.pipe()
    flags = "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-extensions --remote-debugging-pipe"
    words = (program, *flags.split(), f"--user-data-dir={profile}", "about:blank")
    process = subprocess.Popen(
        [sys.executable, "-c", _WITH_PIPES, str(commands_out), str(answers_in), *words],
        pass_fds=(commands_out, answers_in),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands_out)
    os.close(answers_in)
    try:
        yield Browser(commands, answers)
    finally:
        os.close(commands)  # the browser ends when its pipe does
        os.close(answers)
        process.terminate()
        process.wait(PATIENCE_S)
