"""Connection to Ray: the private token of a local one, and a local one that does not start.

Alone: .venv/bin/pytest tests/orchestrator/cluster/test_connection.py
"""

import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest
import ray

from orchestrator.cluster.connection import _use_private_token, connect
from orchestrator.errors import ClusterError
from orchestrator.settings import Settings
from tests.waiting import PATIENCE_S


@pytest.fixture
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that what the code sets is undone
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("no_token")
def test_a_local_rays_token_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    _use_private_token(tmp_path / "home")
    path = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
    token = path.read_text()
    assert len(token) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.environ["RAY_AUTH_MODE"] == "token"
    path.chmod(0o644)
    del os.environ["RAY_AUTH_TOKEN_PATH"]
    _use_private_token(tmp_path / "home")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == token


@pytest.mark.usefixtures("no_token")
def test_a_token_or_mode_of_ones_own_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "mine")
    _use_private_token(tmp_path / "a")
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    _use_private_token(tmp_path / "b")
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()
    assert "RAY_AUTH_TOKEN_PATH" not in os.environ


@pytest.mark.parametrize("num_slow", [1, 2])
def test_a_local_ray_that_does_not_start_in_time_is_ended_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_slow: int
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def init(**options: object) -> None:
        if len(started) < num_slow:
            started.append(subprocess.Popen(["sleep", "1000"]))
            raise Exception("The current node timed out during startup.")  # as Ray says it

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with subprocess.Popen(["sleep", "1000"]) as other:
        with connect(Settings.from_options(home=str(tmp_path), environ={})):
            assert [node.wait(PATIENCE_S) for node in started] == [-signal.SIGKILL] * num_slow
            assert other.poll() is None
        other.kill()


def test_a_local_ray_that_does_not_start_in_time_is_trouble_of_the_cluster_at_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**options: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    settings = Settings.from_options(home=str(tmp_path), environ={})
    with (
        pytest.raises(ClusterError, match="a local Ray could not be started: The current node timed out"),
        connect(settings),
    ):
        pytest.fail("there is no Ray to work on")
