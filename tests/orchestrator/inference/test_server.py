"""`orchestrator serve` as a person starts it: the port, the token, an answer, Ctrl-C.

Alone: .venv/bin/pytest tests/orchestrator/inference/test_server.py
"""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from orchestrator.inference import predict
from tests.contracts.imports import ROOT
from tests.orchestrator.tiny_models import save_pair_model
from tests.waiting import PATIENCE_S

TOKEN = "0123456789abcdef"


def ask(url: str, inputs: list[str], token: str) -> tuple[int, dict[str, object]]:
    request = urllib.request.Request(
        f"{url}/v1/answers",
        json.dumps({"inputs": inputs}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.runs
def test_a_served_model_answers_as_predict_does_until_it_is_interrupted(tmp_path: Path) -> None:
    folder = save_pair_model(tmp_path / "model", ["no", "yes"])
    arguments = ["--home", str(tmp_path / "home"), "serve", folder, "--port", "0"]
    server = subprocess.Popen(
        [sys.executable, "-c", "from orchestrator.cli import main; main()", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ORCHESTRATOR_SERVE_TOKEN": TOKEN},
    )
    assert server.stdout is not None
    try:
        url = server.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url), url or server.communicate()
        inputs = ["cats rest on the mat", "rain"]
        assert ask(url, inputs, TOKEN) == (200, {"answers": list(predict(folder, inputs))})
        status, refusal = ask(url, inputs, "wrong")
        assert status == 401
        assert "token" in str(refusal)
        assert ask(url, ["cats", "\t"], TOKEN)[0] in (200, 422)
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=PATIENCE_S)
    finally:
        server.kill()
        server.wait()
    assert (server.returncode, out) == (0, "")
    assert f"curl {url}/v1/answers" in err
    assert err.endswith(f"stopped: {folder} is no longer served\n")
    assert TOKEN not in err
