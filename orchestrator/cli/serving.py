"""Command `serve`: a model behind HTTP, with a page to try it."""

import json
import shlex
from typing import TYPE_CHECKING

import click

from orchestrator.cli.frame import GlobalOptionsCommand, current_settings, precision_option
from orchestrator.cli.messages import notify, say_now
from orchestrator.cli.output import show_text
from orchestrator.progress import clear_screen

if TYPE_CHECKING:
    from orchestrator.inference.answering import Abilities
    from orchestrator.specs.network import Precision


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator serve my-model\norchestrator serve my-model --host 0.0.0.0 --token-file token",
)
@click.argument("model", metavar="MODEL")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="Address to bind; a non-local one needs a token.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    metavar="PORT",
    help="Port; 0 for any free one.",
)
@click.option("--token-file", metavar="FILE", help="File (mode 0600) with the token for requests.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Device on this machine; cuda: its GPU.",
)
@precision_option
def serve(
    model: str,
    host: str,
    port: int,
    token_file: str | None,
    device: str,
    precision: "Precision",
) -> None:
    """Serve a model over HTTP, until Ctrl-C.

    A web page to try it and a JSON API (POST /v1/answers; GET /v1/model describes the input). A fine-tuned model
    predicts, an embedding model returns vectors, a pretrained one fills [MASK]. It listens on this machine alone;
    --host opens it to others and needs a token, in a file or in ORCHESTRATOR_SERVE_TOKEN. The connection is not
    encrypted: outside a private network, use a TLS proxy.
    """
    say_now(f"loading {model}")
    from orchestrator.models.resolve import resolve_model
    from orchestrator.web.tokens import TOKEN_VARIABLE, read_token

    token = read_token(host, token_file)
    folder = resolve_model(model, current_settings())
    from orchestrator.serving.app import serve_model

    urls: list[str] = []

    def on_ready(url: str, abilities: "Abilities") -> None:
        urls.append(url)
        clear_screen()
        carried = f"$(cat {shlex.quote(token_file)})" if token_file else f"${TOKEN_VARIABLE}" if token else None
        _say_how_to_ask(model, url, abilities, carried)

    try:
        serve_model(model, folder, on_ready, host=host, port=port, device=device, token=token, precision=precision)
    except KeyboardInterrupt:
        if not urls:
            raise
    notify(f"stopped: {model} is no longer served")


def _say_how_to_ask(model: str, url: str, abilities: "Abilities", token: str | None) -> None:
    """Show the address on stdout, and a request to begin with on stderr; `token` is how a shell reads the token."""
    show_text(url)
    header = f' -H "Authorization: Bearer {token}"' if token else ""
    body = shlex.quote(json.dumps({"inputs": [abilities.example]}, ensure_ascii=False))
    notify(
        f"{model} ({abilities.head}) answers there: a page to try it; as JSON:\n"
        f"  curl {url}/v1/answers{header} -H 'Content-Type: application/json' \\\n    -d {body}\nCtrl-C ends it"
    )
