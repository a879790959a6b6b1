"""Tokens and addresses: which need one, and which tokens are refused.

Alone: .venv/bin/pytest tests/orchestrator/web/test_tokens.py
"""

from pathlib import Path

import pytest

from orchestrator.errors import InputError
from orchestrator.web.tokens import TOKEN_VARIABLE, is_loopback, read_token

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
