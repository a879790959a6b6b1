"""`predict`, `embed`: what a model says to each line or row of a file."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrator.cli.commands.output_files import write_pieces
from orchestrator.cli.frame import GlobalOptionsCommand, current_settings
from orchestrator.cli.messages import notify, say_now, status_line
from orchestrator.cli.output_option import output_option, output_path
from orchestrator.cli.precision_option import precision_option
from orchestrator.errors import InputError
from orchestrator.progress import counted, is_terminal

if TYPE_CHECKING:
    from orchestrator.inference.blocks import LinePredictor, PredictedBlock
    from orchestrator.specs.network import Precision
    from orchestrator.tasks import TaskDefinition

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_STDIN = "-"
_SHOWN_DIGITS = 4
"""Significant digits of a number for a person; files and pipes have all."""
_VECTOR_FILES = ("", ".json", ".jsonl", ".npy")


def _lines_and_workers(command: F) -> F:
    """Add the argument FILE and the options `--workers`, `--gpus-per-worker` and `--precision` to a command."""
    for option in (
        precision_option,
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
    example='orchestrator predict my-model "A charming film."\n'
    "orchestrator predict my-model reviews.csv.gz -o answered.csv --workers 4",
)
@click.argument("model", metavar="MODEL")
@_lines_and_workers
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Examples of a forward pass; fewer where memory runs out.",
)
@click.option(
    "--text-column",
    "text_columns",
    metavar="NAME",
    multiple=True,
    help="Column of a table with the text, again for a second text; those it was fine-tuned on when left out.",
)
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["csv", "jsonl"]),
    help="Form of the answers to a table; as FILE, or as the ending of --output, when left out.",
)
@output_option("Instead of stdout")
def predict(
    model: str,
    file: str,
    workers: int | None,
    gpus: float,
    precision: "Precision",
    batch_size: int,
    text_columns: tuple[str, ...],
    form: str | None,
    output: str | None,
) -> None:
    """A fine-tuned model's answer to each line or row.

    FILE is a path or URI (.gz, .xz and .zst too), or a text of your own in quotes; stdin when left out. Answers are the
    same from any number of workers.

    A table (.csv, .tsv, .parquet) is answered with a table: its columns, then `prediction` and `score`, which is the
    probability of a class. Anything else is answered with JSON lines: lines of text (two texts with a tab between them;
    words for NER), CoNLL columns, SQuAD's JSON, or JSON objects with text and text_pair (and the model's own columns by
    name, null for missing), text and choices, words, or question and context. Where such an object has a key of the
    answer already, as `label`, it stays, and the answer stands under `predicted_label`. Empty lines are passed over.
    """
    say_now(f"loading {model}")
    from orchestrator.finetuning.model_record import read_saved_definition
    from orchestrator.inference.requests import (
        RequestFile,
        check_request,
        check_requests,
        look_at_requests,
        refuse_table,
    )
    from orchestrator.models.resolve import resolve_model
    from orchestrator.storage import local_copy
    from orchestrator.storage.text_lines import stream_lines

    text = _text_of(file)
    if (file == _STDIN or text is not None) and text_columns:
        raise click.UsageError("--text-column names a column of a table; name the FILE, stdin is read as lines")
    folder = resolve_model(model, current_settings())
    copied = local_copy(folder, skip=("model.safetensors",))
    task = read_saved_definition(copied) or _guessed_definition(copied)
    lines = file == _STDIN or text is not None
    requests = RequestFile(stream_lines) if lines else look_at_requests(file, task, text_columns)
    if text is not None:
        check_request(text, 1, task, requests.text_columns(task))
    elif file != _STDIN and (num_blank := check_requests(file, requests, task)):
        notify(
            f"{counted(num_blank, 'empty line')} of {file}: no answer stands for {'it' if num_blank == 1 else 'them'}"
        )
    from orchestrator.inference.predictor import AnswerForm, Predictor  # torch among it: a wrong file is told before

    of_stdin = partial(refuse_table, text_columns=task.text_columns)
    is_shown = output in (None, _STDIN) and is_terminal(sys.stdout)
    delimiter = _delimiter(file, form, output) if requests.table else None
    answer_form = AnswerForm(requests.table, delimiter, _SHOWN_DIGITS if is_shown else None)
    load = partial(Predictor.load, batch_size=batch_size, device=_device(gpus), form=answer_form, precision=precision)
    answers = _answers(load, folder, file, workers, gpus, requests.read, of_stdin)
    header = answer_form.header()
    _answer(answers, output, lambda pieces: write_pieces(chain([header] if header else [], pieces), output))


def _guessed_definition(folder: Path) -> "TaskDefinition":
    """The task of a model made elsewhere, as its head tells it."""
    from orchestrator.finetuning.model_folder import load_task_definition

    return load_task_definition(folder)


def _text_of(file: str) -> str | None:
    """The text that stands in place of FILE: words with white space between them; None for a file.

    Words that end as a file of data does are the name of one that was mistyped: its name has no answer.
    """
    from orchestrator.cli.data_names import is_named_as_data
    from orchestrator.storage import exists

    is_text = len(file.split()) > 1 and not is_named_as_data(file) and not exists(file)
    return file if is_text else None


def _delimiter(file: str, form: str | None, output: str | None) -> str | None:
    """Sign between the fields of the answers to a table, that of the table where both are CSV; None for JSON lines."""
    from orchestrator.storage.text_lines import stream_lines
    from orchestrator.tasks.csv_tables import csv_header
    from orchestrator.tasks.text_files import plain_name

    ending = Path(plain_name(output if output not in (None, _STDIN) else file)).suffix
    if form == "jsonl" or (form is None and ending in (".json", ".jsonl", ".ndjson")):
        return None
    if form is not None:
        return ","
    if ending == ".tsv":
        return "\t"
    are_csv = ending == Path(plain_name(file)).suffix == ".csv"
    delimiter = csv_header(stream_lines(file), None).delimiter if are_csv else ","
    return "," if delimiter == "\t" else delimiter  # which a name in .csv does not promise


@click.command(
    cls=GlobalOptionsCommand,
    example='orchestrator embed my-encoder "A charming film."\n'
    "orchestrator embed my-encoder texts.jsonl.gz -o vectors.npy --workers 4",
)
@click.argument("model", metavar="MODEL")
@_lines_and_workers
@output_option("Instead of stdout: .npy a matrix, a row for each text; .jsonl, .json the lines")
@click.option("--dimensions", type=click.IntRange(1), help="First numbers of a vector that are kept; all by default.")
@click.option("--as", "role", type=click.Choice(["document", "query"]), default="document", help="What a text is.")
def embed(
    model: str,
    file: str,
    workers: int | None,
    gpus: float,
    precision: "Precision",
    output: str | None,
    dimensions: int | None,
    role: str,
) -> None:
    """One vector for each line of text.

    Lines come from FILE (a path or URI; .gz, .xz and .zst too), or stdin: text, or JSON objects with text; or FILE is a
    text of your own in quotes. Results are JSON lines with an embedding beside what the line said, the same from any
    number of workers. MODEL is any encoder; a sentence-transformers folder says how its tokens are pooled, for others
    it is their mean. If it has prompts, that of documents stands before each text, or that of queries. Blank lines are
    passed over.
    """
    suffix = "" if output in (None, _STDIN) else Path(str(output)).suffix.lower()
    if suffix not in _VECTOR_FILES:
        raise InputError(f"{output}: vectors are written as .npy or .jsonl; name a file that ends so")
    say_now(f"loading {model}")
    from orchestrator.inference.embedder import LineEmbedder, write_matrix
    from orchestrator.models.resolve import resolve_model
    from orchestrator.retrieval.text_vectors import embedding_size

    folder = resolve_model(model, current_settings())
    dimension = embedding_size(folder, dimensions)
    kept: dict[str, Any] = {"as_matrix": suffix == ".npy", "dimensions": dimensions, "role": role}
    load = partial(LineEmbedder.load, device=_device(gpus), precision=precision, **kept)
    answers = _answers(load, folder, file, workers, gpus)
    if output is None or suffix != ".npy":
        _answer(answers, output, lambda pieces: write_pieces(pieces, output))
        return
    place = output_path(output)
    num_vectors = _answer(answers, output, lambda pieces: write_matrix(place, pieces, dimension))
    notify(f"wrote {output}: {counted(num_vectors, 'vector')} of {dimension} numbers")


def _device(gpus: float) -> str:
    return "cuda" if gpus else "cpu"


def _answers(
    load: "Callable[[str], LinePredictor]",
    folder: str,
    file: str,
    workers: int | None,
    gpus: float,
    read: "Callable[[str], Iterable[str]] | None" = None,
    of_stdin: "Callable[[Iterable[str]], Iterable[str]]" = iter,
) -> "Iterator[PredictedBlock]":
    """The answers to FILE; stdin, which `of_stdin` passes on, and a text are answered by this process."""
    from orchestrator.inference.blocks import line_blocks
    from orchestrator.inference.line_files import predict_file
    from orchestrator.storage.text_lines import stream_lines

    text = _text_of(file)
    if file != _STDIN and text is None:
        return predict_file(load, folder, file, current_settings(), workers, gpus, notify, read or stream_lines)
    if workers is not None:
        raise InputError("workers read a file; name a FILE, or leave --workers out")
    if text is not None:
        return map(load(folder), line_blocks([text]))
    if is_terminal(sys.stdin):
        notify("reading from the terminal; end with Ctrl-D")
    lines = click.open_file(_STDIN, encoding="utf-8", errors="surrogateescape")
    return map(load(folder), line_blocks(of_stdin(lines)))


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
                rate = num_lines / (time.monotonic() - begun_at)
                status(f"{counted(num_lines, 'line')}  {rate:{',.0f' if rate >= 10 else '.2g'}} lines/s")

    with status_line() as status:
        written = write(pieces(status))
    if num_truncated:
        notify(f"of {counted(num_truncated, 'text')} only the beginning was read: the model reads no more tokens")
    return written
