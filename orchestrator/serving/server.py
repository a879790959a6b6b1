"""A model served until this process is interrupted: replicas on Ray, and an HTTP server here."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.cluster.connection import connect
from orchestrator.inference.answering import Abilities
from orchestrator.progress import UNDER_WAY
from orchestrator.serving.app import build_app
from orchestrator.settings import Settings
from orchestrator.specs.network import Precision
from orchestrator.web.server import listening, names_of, serve_app, url_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServeOptions:
    """Options of a server: where it listens, and what answers."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0 for any free one."""
    num_replicas: int = 1
    device: str = "cpu"
    """`cpu`, or `cuda` for a GPU of each replica."""
    token: str | None = None
    precision: Precision = "fp32"
    """Arithmetic of the forward pass."""


def serve_model(
    name: str,
    folder: str,
    options: ServeOptions,
    settings: Settings,
    on_ready: Callable[[str, Abilities], None],
) -> None:
    """Serve a model's folder until this process is interrupted, which is a `KeyboardInterrupt`.

    Args:
        on_ready: called with the URL, and what the model can do, once it answers.

    Raises: InputError for an address or a port that cannot be taken; CheckpointError, TokenizerError; ClusterError.
    """
    with listening(options.host, options.port) as listener:
        logger.info("starting Ray", extra=UNDER_WAY)
        with connect(settings, num_cpus=options.num_replicas):
            from orchestrator.serving.replicas import running_replicas  # after `connect`, which prepares for Ray

            logger.info(f"loading {name}", extra=UNDER_WAY)
            replicas = running_replicas(folder, options.device, options.num_replicas, options.precision)
            with replicas as (abilities, ask):
                app = build_app(name, abilities, ask, options.token, names_of(options.host))
                url = url_of(options.host, listener.getsockname()[1])
                serve_app(app, listener, lambda: on_ready(url, abilities))
