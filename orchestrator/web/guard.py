"""Guard before the application: the name that a request calls, the token, and the size of a request."""

import json
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from orchestrator.web.tokens import is_right

MAX_BODY_BYTES = 1 << 20
"""Size of a request's body at most."""
OPEN_PATHS = ("/", "/health")
"""Paths that need no token: the page, which has nothing of the model in it, and whether the server lives."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Guard:
    """ASGI application that lets requests through to another one: by its name, with the right token, not too large."""

    def __init__(self, app: App, token: str | None, hosts: Sequence[str] = ()) -> None:
        self._app = app
        self._token = token
        self._hosts = hosts
        """Names by which requests may call; none: any name."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request that is refused, or hand it on with its whole body."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if self._hosts and _called_name(headers.get("host", "")) not in self._hosts:
            message = f"this server answers to {', '.join(self._hosts)} alone; call it by one of these names"
            await _refuse(send, 400, "Host", message, [])
            return
        is_open = self._token is None or scope["path"] in OPEN_PATHS
        if not is_open and not is_right(headers.get("authorization"), self._token or ""):
            message = "a token is needed, and none or a wrong one was sent; send the header Authorization: Bearer TOKEN"
            await _refuse(send, 401, "Authorization", message, [(b"www-authenticate", b"Bearer")])
            return
        body = await _whole_body(receive, headers.get("content-length", "0"))
        if body is None:
            message = f"the request is larger than {MAX_BODY_BYTES:,} bytes; send fewer inputs at a time"
            await _refuse(send, 413, "body", message, [(b"connection", b"close")])
            return
        pending = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        await self._app(scope, replay, send)


def _called_name(host: str) -> str:
    """The name in a `Host` header, without the port."""
    return re.sub(r":\d*$", "", host).lower()


async def _whole_body(receive: Receive, length: str) -> bytes | None:
    """The body of a request; None where it is too large, which is noticed before more of it is kept."""
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


async def _refuse(send: Send, status: int, field: str, message: str, headers: list[tuple[bytes, bytes]]) -> None:
    body = json.dumps({"error": {"field": field, "message": message}}).encode()
    fixed = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *headers]})
    await send({"type": "http.response.body", "body": body})
