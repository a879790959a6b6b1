"""Files of text on the command line: the argument FILE..., and the options that say how they are read."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from orchestrator.specs import TextSource

F = TypeVar("F", bound=Callable[..., Any])

_FORMATS = click.Choice(["auto", "text", "jsonl", "parquet"])
_POLICIES = click.Choice(["error", "skip", "replace"])


def source_options(command: F) -> F:
    """Add the argument FILE... and the options that say how its files are read."""
    return click.argument("files", metavar="FILE...", nargs=-1, required=True)(reading_text_options(command))


def reading_text_options(command: F) -> F:
    """Add the options that say how files of text are read."""
    for option in (
        click.option(
            "--on-bad-record",
            type=_POLICIES,
            default="error",
            show_default=True,
            help="A broken record: stop, leave it out, or mend its bytes.",
        ),
        click.option("--text-field", default="text", show_default=True, help="Key or column of the text."),
        click.option("--input-format", type=_FORMATS, default="auto", show_default=True, help="How files are read."),
    ):
        command = option(command)
    return command


def text_source(
    files: tuple[str, ...],
    input_format: str,
    text_field: str,
    on_bad_record: str,
    limit: int | None = None,
    sampling_exponent: float = 1.0,
) -> "TextSource":
    """The files that a person named, as a spec names them."""
    from orchestrator.specs import TextSource

    return TextSource(
        files=files,
        format=input_format,  # type: ignore[arg-type]
        text_field=text_field,
        on_bad_record=on_bad_record,  # type: ignore[arg-type]
        max_documents=limit,
        sampling_exponent=sampling_exponent,
    )
