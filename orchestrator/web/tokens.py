"""The token that requests must carry, and the addresses that need none."""

import hmac
import ipaddress
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from orchestrator.errors import InputError

TOKEN_VARIABLE = "ORCHESTRATOR_SERVE_TOKEN"
MIN_CHARACTERS = 16


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(host: str, file: str | None, environ: Mapping[str, str] | None = None) -> str | None:
    """The token of a private file, or else of the environment; None where there is none and none is needed.

    Raises: InputError for a file that others can read, a token that can be guessed, and an address that others reach
    without any.
    """
    environ = os.environ if environ is None else environ
    token = _read_private(Path(file).expanduser()) if file else environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        if file:
            raise InputError(f"{file} is empty; write a token into it: openssl rand -hex 32")
        if not is_loopback(host):
            raise InputError(
                f"others reach {host}, and no token is set; write one into a file with mode 0600 and give it with "
                f"--token-file, or set {TOKEN_VARIABLE}; or leave --host out to serve this machine alone"
            )
        return None
    if len(token) < MIN_CHARACTERS or not token.isascii() or not token.isprintable() or " " in token:
        where = file or TOKEN_VARIABLE
        raise InputError(
            f"the token in {where} must be {MIN_CHARACTERS} or more ASCII characters without spaces; make one with: "
            "openssl rand -hex 32"
        )
    return token


def is_right(header: str | None, token: str) -> bool:
    """Whether an `Authorization` header carries the token; the time it takes tells nothing about the token."""
    scheme, _, given = (header or "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def _read_private(path: Path) -> str:
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise InputError(f"{path}, which should hold the token, cannot be read: {reason}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise InputError(f"{path} holds the token and others can read it; run: chmod 600 {path}")
    return text.strip()
