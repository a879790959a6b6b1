"""HTTP servers of this machine: the socket, the token, and the guard in front of an application."""

import hmac
import ipaddress
import json
import os
import re
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.base.errors import InputError
from orchestrator.base.settings import read_private

SERVE_PORT, BOARD_PORT = 8000, 8100
"""Default ports of `serve` and `board`."""
TOKEN_VARIABLE = "ORCHESTRATOR_SERVE_TOKEN"
MIN_CHARACTERS = 16
MAX_BODY_BYTES = 1 << 20
"""Size of a request's body at most."""
OPEN_PATHS = ("/", "/health")
"""Paths that need no token: the page, which has nothing of the model in it, and whether the server lives."""
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
"""Names by which a browser of this machine calls a server that others do not reach."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def names_of(host: str) -> tuple[str, ...]:
    """Names by which requests may call a server that listens on an address; none where others reach it: any name."""
    if not is_loopback(host):
        return ()
    return tuple(dict.fromkeys((*LOOPBACK_NAMES, f"[{host.lower()}]" if ":" in host else host)))


@contextmanager
def listening(host: str, port: int, *, has_host_option: bool = True) -> Iterator[socket.socket]:
    """Open a socket that listens, before anything else is loaded. Raises: InputError.

    Args:
        has_host_option: whether a person can give another address, for the message.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        reason = str(error.strerror or "it cannot be used").partition(" (while ")[0]
        raise InputError(
            f"nothing can listen on port {port} of {host}: {reason}; give another --port (0 for any free one)"
            f"{', or another --host' if has_host_option else ''}"
        ) from None
    with listener:
        yield listener


def url_of(host: str, port: int) -> str:
    """Address by which a browser calls the server: with this machine's name where it listens on all interfaces."""
    host = socket.gethostname() if host in ("0.0.0.0", "::") else host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve_app(app: App, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Answer requests with an application until this process is interrupted, which is a `KeyboardInterrupt`.

    Args:
        on_ready: called when the application can answer; the socket keeps the first requests until then.
    """
    import uvicorn

    config = uvicorn.Config(
        app, log_level="error", access_log=False, lifespan="off", server_header=False, timeout_graceful_shutdown=5
    )
    config.load()
    on_ready()
    uvicorn.Server(config).run(sockets=[listener])


def read_token(host: str, file: str | None, environ: Mapping[str, str] | None = None) -> str | None:
    """Read the token from a private file, or else the environment; None where there is none and none is needed.

    Raises: InputError for a file that others can read, a token that can be guessed, and an address that others reach
    without any.
    """
    environ = os.environ if environ is None else environ
    token = (
        read_private(Path(file).expanduser(), "the token", InputError)
        if file
        else environ.get(TOKEN_VARIABLE, "").strip()
    )
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
        raise InputError(
            f"the token in {file or TOKEN_VARIABLE} must be {MIN_CHARACTERS} or more ASCII characters without spaces; "
            "make one with: openssl rand -hex 32"
        )
    return token


class Guard:
    """ASGI middleware that refuses requests for another host, without the token, or with too large a body."""

    def __init__(self, app: App, token: str | None, hosts: Sequence[str] = ()) -> None:
        self._app = app
        self._token = token
        self._hosts = hosts
        """Names by which requests may call; none: any name."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on with its whole body."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if self._hosts and re.sub(r":\d*$", "", headers.get("host", "")).lower() not in self._hosts:
            message = f"this server answers to {', '.join(self._hosts)} alone; call it by one of these names"
            await _refuse(send, 400, "Host", message)
            return
        if (
            self._token is not None
            and scope["path"] not in OPEN_PATHS
            and not self._has_token(headers.get("authorization", ""))
        ):
            message = "a token is needed, and none or a wrong one was sent; send the header Authorization: Bearer TOKEN"
            await _refuse(send, 401, "Authorization", message, (b"www-authenticate", b"Bearer"))
            return
        body = await _whole_body(receive, headers.get("content-length", "0"))
        if body is None:
            message = f"the request is larger than {MAX_BODY_BYTES:,} bytes; send fewer inputs at a time"
            await _refuse(send, 413, "body", message, (b"connection", b"close"))
            return
        pending = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        await self._app(scope, replay, send)

    def _has_token(self, header: str) -> bool:
        """Whether an `Authorization` header has the token; the time of the answer tells nothing about the token."""
        scheme, _, given = header.partition(" ")
        right = (self._token or "").encode()
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), right)


async def _whole_body(receive: Receive, length: str) -> bytes | None:
    """Read the body of a request; None where it is too large, which is noticed before more of it is kept."""
    if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
        return None
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return body
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MAX_BODY_BYTES:
            return None
    return body


async def _refuse(send: Send, status: int, field: str, message: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"error": {"field": field, "message": message}}).encode()
    fixed = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *headers]})
    await send({"type": "http.response.body", "body": body})
