"""`predict`, `embed`: what a model says to each line of a file."""

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrator.cli.commands.output_files import check_output, output_path, write_pieces
from orchestrator.cli.frame import AtDashboard, GlobalOptionsCommand, current_settings
from orchestrator.cli.output import counted, notify, status_line
from orchestrator.progress import is_terminal

if TYPE_CHECKING:
    from orchestrator.inference.blocks import LinePredictor, PredictedBlock

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_STDIN = "-"
_VECTOR_FILES = ("", ".json", ".jsonl", ".npy")


def _lines_and_workers(command: F) -> F:
    """Add the argument FILE and the options `--workers` and `--gpus-per-worker` to a command."""
    for option in (
        click.option(
            "--gpus-per-worker",
            "gpus",
            type=click.FloatRange(0),
            default=0.0,
            show_default=True,
            help="GPUs of each worker, beside one CPU.",
        ),
        click.option(
            "--workers",
            type=click.IntRange(1),
            help="Processes on Ray that answer FILE together; as many as fit where --address names a cluster.",
        ),
        click.argument("file", metavar="[FILE]", default=_STDIN),
    ):
        command = option(command)
    return command


@click.command(
    cls=GlobalOptionsCommand,
    at_dashboard=AtDashboard.REFUSED,
    example='echo "A charming film." | orchestrator predict my-model\n'
    "orchestrator predict my-model reviews.txt.gz -o labels.jsonl --workers 4",
)
@click.argument("model", metavar="MODEL")
@_lines_and_workers
@click.option("--batch-size", type=click.IntRange(1), default=64, show_default=True, help="Examples of a forward pass.")
@click.option("-o", "--output", metavar="FILE", help="Instead of stdout.")
def predict(model: str, file: str, workers: int | None, gpus: float, batch_size: int, output: str | None) -> None:
    """A fine-tuned model's answer to each line of text.

    Lines come from FILE (a path or URI; .gz, .xz and .zst too) or stdin, answers are JSON lines, the same from any
    number of workers. A line is text (two texts with a tab between them; words for NER), or a JSON object with text
    and text_pair (and the model's own columns by name, null for missing), text and choices, words, or question and
    context.
    """
    from orchestrator.inference.predictor import Predictor
    from orchestrator.models.resolve import resolve_model

    check_output(output)
    folder = resolve_model(model, current_settings())
    load = partial(Predictor.load, batch_size=batch_size, device=_device(gpus))
    _answer(_answers(load, folder, file, workers, gpus), output, lambda pieces: write_pieces(pieces, output))


@click.command(
    cls=GlobalOptionsCommand,
    at_dashboard=AtDashboard.REFUSED,
    example='echo "A charming film." | orchestrator embed my-encoder\n'
    "orchestrator embed my-encoder texts.jsonl.gz -o vectors.npy --workers 4",
)
@click.argument("model", metavar="MODEL")
@_lines_and_workers
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Instead of stdout: .npy a matrix, a row for each text; .jsonl, .json the lines.",
)
def embed(model: str, file: str, workers: int | None, gpus: float, output: str | None) -> None:
    """One vector for each line of text.

    Lines come from FILE (a path or URI; .gz, .xz and .zst too) or stdin: text, or JSON objects with text. Results are
    JSON lines with an embedding beside what the line said, the same from any number of workers. MODEL is any encoder;
    a sentence-transformers folder says how its tokens are pooled, for others it is their mean. Blank lines are passed
    over.
    """
    from orchestrator.errors import InputError
    from orchestrator.inference.embedder import LineEmbedder, write_matrix
    from orchestrator.models.resolve import resolve_model
    from orchestrator.retrieval.text_vectors import embedding_size

    suffix = "" if output in (None, _STDIN) else Path(str(output)).suffix.lower()
    if suffix not in _VECTOR_FILES:
        raise InputError(f"{output}: vectors are written as .npy or .jsonl; name a file that ends so")
    check_output(output)
    folder = resolve_model(model, current_settings())
    load = partial(LineEmbedder.load, as_matrix=suffix == ".npy", device=_device(gpus))
    answers = _answers(load, folder, file, workers, gpus)
    if output is None or suffix != ".npy":
        _answer(answers, output, lambda pieces: write_pieces(pieces, output))
        return
    place, dimension = output_path(output), embedding_size(folder)
    num_vectors = _answer(answers, output, lambda pieces: write_matrix(place, pieces, dimension))
    notify(f"wrote {output}: {counted(num_vectors, 'vector')} of {dimension} numbers")


def _device(gpus: float) -> str:
    return "cuda" if gpus else "cpu"


def _answers(
    load: "Callable[[str], LinePredictor]", folder: str, file: str, workers: int | None, gpus: float
) -> "Iterator[PredictedBlock]":
    """The answers to FILE; stdin is this process's alone, and so are the answers to it."""
    from orchestrator.errors import InputError
    from orchestrator.inference.blocks import line_blocks
    from orchestrator.inference.line_files import predict_file

    if file != _STDIN:
        return predict_file(load, folder, file, current_settings(), workers, gpus, notify)
    if workers is not None:
        raise InputError("workers cannot read this process's stdin; name a FILE, or leave --workers out")
    if is_terminal(sys.stdin):
        notify("reading from the terminal; end with Ctrl-D")
    return map(load(folder), line_blocks(click.open_file(_STDIN, encoding="utf-8", errors="surrogateescape")))


def _answer(answers: "Iterator[PredictedBlock]", output: str | None, write: Callable[[Iterator[bytes]], T]) -> T:
    """Write the answers while they come, and tell how far they are where that does not stand among them."""
    num_truncated = 0

    def pieces(status: Callable[[str], None]) -> Iterator[bytes]:
        nonlocal num_truncated
        num_lines, begun_at = 0, time.monotonic()
        for some in answers:
            yield some.data
            num_lines += some.num_lines
            num_truncated += some.num_truncated
            if output not in (None, _STDIN) or not is_terminal(sys.stdout):
                status(f"{counted(num_lines, 'line')}  {num_lines / (time.monotonic() - begun_at):,.0f} lines/s")

    with status_line() as status:
        written = write(pieces(status))
    if num_truncated:
        notify(f"of {counted(num_truncated, 'text')} only the beginning was read: the model reads no more tokens")
    return written
