"""A web application that answers in a thread, on a port of its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from orchestrator.base.web import App, listening


@contextmanager
def answering(app: App) -> Iterator[str]:
    """Address of an application that answers in a thread meanwhile."""
    with listening("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
