"""A server of this machine: the address it listens on, the names it is called by, its life until it is interrupted."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from orchestrator.errors import InputError
from orchestrator.web.guard import App
from orchestrator.web.tokens import is_loopback

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
"""Names by which a browser of this machine calls a server that others do not reach."""


def names_of(host: str) -> tuple[str, ...]:
    """Names by which requests may call a server that listens on an address; none where others reach it: any name."""
    if not is_loopback(host):
        return ()
    return tuple(dict.fromkeys((*LOOPBACK_NAMES, f"[{host.lower()}]" if ":" in host else host)))


@contextmanager
def listening(host: str, port: int, *, has_host_option: bool = True) -> Iterator[socket.socket]:
    """A socket that listens, taken before anything is loaded. Raises: InputError.

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
    """Address by which a browser calls the server; of one that listens everywhere, by this machine's name."""
    host = socket.gethostname() if host in ("0.0.0.0", "::") else host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve_app(app: App, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Answer requests with an application until this process is interrupted, which is a `KeyboardInterrupt`.

    Args:
        on_ready: called once it answers.
    """
    _Server(app, on_ready).run(sockets=[listener])


class _Server(uvicorn.Server):
    """The HTTP server of an application; says when it answers."""

    def __init__(self, app: App, on_ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_level="error",
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=5,
            )
        )
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets)
        self._on_ready()
