"""`orchestrator serve` before anything is started: what is refused, and how to ask.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_serving.py
"""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.inference.answering import Abilities
from orchestrator.serving import app
from orchestrator.web.server import listening
from tests.orchestrator.cli.laboratory import Command
from tests.orchestrator.tiny_models import save_pair_model


@pytest.fixture
def model(tmp_path: Path) -> str:
    return save_pair_model(tmp_path / "model", ["no", "yes"])


def test_a_port_in_use_is_refused_before_the_model_is_loaded(command: Command, model: str) -> None:
    with listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        outcome = command("serve", model, "--port", str(port))
    assert (outcome.status, outcome.out) == (2, "")
    assert f"port {port}" in outcome.err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "lab.example"])
def test_an_address_that_others_reach_is_refused_without_a_token(command: Command, model: str, host: str) -> None:
    outcome = command("serve", model, "--host", host)
    assert (outcome.status, outcome.out) == (2, "")
    assert "--token-file" in outcome.err


@pytest.mark.parametrize("token", [None, "0123456789abcdef"])
def test_a_request_to_paste_is_shown_and_ctrl_c_is_no_error(
    command: Command, model: str, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    def serve_model(name: str, folder: str, on_ready: Callable[[str, Abilities], None], **options: object) -> None:
        assert options["token"] == token
        on_ready("http://127.0.0.1:8000", Abilities("qa", ("text",), (), True, {"text": "it's $HOME"}))
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "serve_model", serve_model)
    if token is not None:
        monkeypatch.setenv("ORCHESTRATOR_SERVE_TOKEN", token)
    outcome = command("serve", model)
    assert (outcome.status, outcome.out) == (0, "http://127.0.0.1:8000\n")
    (curl,) = [part for part in outcome.err.split("\n\n") if "curl" in part]
    words = shlex.split(curl[curl.index("curl") : curl.index("Ctrl-C")])
    assert words[-1] == '{"inputs": [{"text": "it\'s $HOME"}]}'
    assert ("Authorization: Bearer $ORCHESTRATOR_SERVE_TOKEN" in words) is (token is not None)
    assert outcome.err.endswith(f"stopped: {model} is no longer served\n")
