"""Commands `fill-mask` and `next-sentence`, which ask a pretrained model."""

from dataclasses import asdict

import click

from orchestrator.cli.frame import GlobalOptionsCommand, current_settings
from orchestrator.cli.messages import say_now
from orchestrator.cli.output import show_record, show_rows
from orchestrator.cli.reading import output_options, reading_options


@click.command(
    "fill-mask",
    cls=GlobalOptionsCommand,
    example='orchestrator fill-mask my-model "Paris is the [MASK] of France."',
)
@click.argument("model", metavar="MODEL")
@click.argument("text")
@click.option("--top-k", type=click.IntRange(1), default=5, show_default=True, help="Guesses for each [MASK].")
@reading_options
def fill_mask(model: str, text: str, top_k: int, form: str | None, output: str | None) -> None:
    """The likeliest tokens for each [MASK] of a text."""
    say_now(f"loading {model}")
    from orchestrator.inference import pretraining_heads
    from orchestrator.models.resolve import resolve_model

    folder = resolve_model(model, current_settings())
    rows = [asdict(guess) for guess in pretraining_heads.fill_mask(folder, text, top_k)]
    show_rows(rows, ["mask", "rank", "token", "probability", "text"], form, output)


@click.command(
    "next-sentence",
    cls=GlobalOptionsCommand,
    example='orchestrator next-sentence my-model "He went home." "Then he slept."',
)
@click.argument("model", metavar="MODEL")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@output_options
def next_sentence(model: str, first: str, second: str, form: str | None, output: str | None) -> None:
    """Tell how likely the text B follows the text A."""
    say_now(f"loading {model}")
    from orchestrator.inference import pretraining_heads
    from orchestrator.models.resolve import resolve_model

    folder = resolve_model(model, current_settings())
    show_record(asdict(pretraining_heads.next_sentence(folder, first, second)), form, output)
