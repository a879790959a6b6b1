"""Command `serve`: a model behind HTTP, with a page to try it."""

import json
import shlex
from typing import TYPE_CHECKING

import click

from orchestrator.cli.frame import GlobalOptionsCommand, current_settings
from orchestrator.cli.messages import notify, say_now
from orchestrator.cli.output import show_text
from orchestrator.cli.precision_option import precision_option
from orchestrator.progress import clear_screen

if TYPE_CHECKING:
    from orchestrator.inference.answering import Abilities
    from orchestrator.specs.network import Precision


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator serve my-model\norchestrator serve my-model --host 0.0.0.0 --token-file token",
)
@click.argument("model", metavar="MODEL")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; others need a token.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 for any free one.")
@click.option("--token-file", metavar="FILE", help="File of mode 0600 with the token that requests must carry.")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where the model computes.",
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
    """Answer by HTTP with a model, until Ctrl-C.

    There is a page to try it, a JSON endpoint (POST /v1/answers; GET /v1/model says what it reads). A fine-tuned
    model predicts, an embedding model gives vectors, a pretrained one fills [MASK]. Only this machine reaches it;
    with --host others do, and a token is needed: in a file, or in ORCHESTRATOR_SERVE_TOKEN. The connection is not
    encrypted: beyond a private network, put a proxy with TLS in front.
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
