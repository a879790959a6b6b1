"""Servers of this machine: ports, names and addresses, and which tokens are refused.

Alone: .venv/bin/pytest tests/orchestrator/base/test_web.py
"""

import socket
from pathlib import Path

import pytest

from orchestrator.base.errors import InputError
from orchestrator.base.web import TOKEN_VARIABLE, is_loopback, listening, names_of, read_token

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback_is_what_this_machine_alone_reaches(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    if loopback:
        assert read_token(host, None, {}) is None
    else:
        with pytest.raises(InputError, match="--token-file"):
            read_token(host, None, {})


def test_a_token_comes_from_a_private_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    assert read_token("0.0.0.0", str(file), {TOKEN_VARIABLE: "another-token-of-16"}) == TOKEN
    assert read_token("127.0.0.1", None, {TOKEN_VARIABLE: TOKEN}) == TOKEN
    file.chmod(0o640)
    with pytest.raises(InputError, match=f"chmod 600 {file}"):
        read_token("0.0.0.0", str(file), {})


@pytest.mark.parametrize("text", ["", "short", "with a space in it", "ümlaut-is-no-header"])
def test_a_token_that_is_empty_or_can_be_guessed_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    with pytest.raises(InputError, match="openssl"):
        read_token("127.0.0.1", str(file), {})


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{tmp_path}/none"):
        read_token("127.0.0.1", str(tmp_path / "none"), {})


def test_a_port_in_use_is_refused_with_the_way_out() -> None:
    with listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"{port}.*--port"), listening("127.0.0.1", port):
            pass


def test_an_address_that_is_not_this_machines_is_refused() -> None:
    with pytest.raises(InputError, match=r"192\.0\.2\.77"), listening("192.0.2.77", 0):
        pass


def test_the_next_server_may_take_the_port_at_once() -> None:
    with listening("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
    with listening("127.0.0.1", port) as second:
        assert isinstance(second, socket.socket)


@pytest.mark.parametrize(
    ("host", "name"), [("127.0.0.2", "127.0.0.2"), ("::1", "[::1]"), ("0:0:0:0:0:0:0:1", "[0:0:0:0:0:0:0:1]")]
)
def test_a_server_of_this_machine_is_called_by_its_own_address_too(host: str, name: str) -> None:
    assert {"localhost", name} <= set(names_of(host))


def test_a_server_that_others_reach_is_called_by_any_name() -> None:
    assert names_of("0.0.0.0") == ()
