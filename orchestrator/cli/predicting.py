"""A model at work: `predict`, `embed`, `fill-mask`, `next-sentence`, and `serve`."""

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrator.base.console import Progress, clear_screen, counted, is_terminal, show_progress
from orchestrator.base.errors import InputError
from orchestrator.base.web import SERVE_PORT
from orchestrator.cli.frame import command, current_settings, port_option, precision_option
from orchestrator.cli.messages import notify, say_now
from orchestrator.cli.output import show_record, show_rows, show_text, write_pieces
from orchestrator.cli.reading import format_options, options, output_option, output_path

if TYPE_CHECKING:
    from bert_core.constants import AskedPrecision
    from orchestrator.inference.line_blocks import Abilities, LinePredictor, PredictedBlock

T = TypeVar("T")

_STDIN = "-"

model_argument = click.argument("model", metavar="MODEL")
batch_size_option = click.option(
    "--batch-size", type=click.IntRange(1), default=64, help="Examples per forward pass; halved when out of memory."
)
device_option = partial(
    click.option,
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    help="Compute on the CPU or GPU of this machine.",
)


def find_model(model: str) -> str:
    """Folder of the model that a command loads, which is said at once. Raises: NotFoundError."""
    say_now(f"loading {model}")
    from orchestrator.registry.model_names import resolve_model

    return resolve_model(model, current_settings())


_lines_and_workers = options(
    click.argument("file", metavar="[FILE]", default=_STDIN),
    click.option(
        "--workers",
        type=click.IntRange(1),
        help="Split FILE over Ray workers. Default: none; with --address all that fit.",
    ),
    click.option("--gpus-per-worker", "gpus", type=click.FloatRange(0), default=0.0, help="GPUs per worker; 0: CPUs."),
)


@command(example='predict my-model "A charming film."\npredict my-model reviews.csv.gz -o predicted.csv --workers 4')
@model_argument
@_lines_and_workers
@precision_option(default="auto")
@batch_size_option
@click.option(
    "--text-column",
    "text_columns",
    metavar="NAME",
    multiple=True,
    help="Text column of a table; repeat for text pairs. Default: those of fine-tuning.",
)
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["csv", "json", "jsonl"]),
    help="Output format for a table; json and jsonl: an object per line. Default: the ending of --output, else of "
    "FILE.",
)
@output_option("Write to FILE instead of stdout.")
def predict(
    model: str,
    file: str,
    workers: int | None,
    gpus: float,
    precision: "AskedPrecision",
    batch_size: int,
    text_columns: tuple[str, ...],
    form: str | None,
    output: str | None,
) -> None:
    """Predict with a fine-tuned model, for each line or row.

    FILE is a path or URI (.gz, .xz and .zst are decompressed), or a quoted text; stdin by default. The number of
    workers does not change the predictions.

    A table (.csv, .tsv, .parquet) returns a table: its columns, `prediction` and `score` (the class probability).
    Anything else returns JSON lines: lines of text (pairs separated by a tab; words for NER), CoNLL, SQuAD
    JSON, or JSON objects with text and text_pair (and the model's own columns), text and choices, words, or question
    and context. A key that exists already, such as `label`, is kept; the prediction is then `predicted_label`. Empty
    lines are skipped.
    """
    folder = find_model(model)
    from orchestrator.finetuning.model_record import read_saved_record
    from orchestrator.inference import requests
    from orchestrator.storage import local_copy
    from orchestrator.storage.text_lines import stream_lines

    lines = _lines_without_file(file, workers)
    if lines is not None and text_columns:
        raise click.UsageError("--text-column names a column of a table; name the FILE, stdin is read as lines")
    copied = local_copy(folder, skip=("model.safetensors",))
    if (record := read_saved_record(copied)) is not None:
        task = record.task
    else:  # a model made elsewhere, whose head tells its task
        from orchestrator.finetuning.model_folder import load_task_definition

        task = load_task_definition(copied)
    asked = requests.RequestFile(stream_lines)
    if file == _STDIN:
        lines = requests.refuse_table(lines or (), task.text_columns)
    elif lines is not None:
        requests.check_request(file, 1, task, asked.text_columns(task))
    else:
        asked = requests.inspect_requests(file, task, text_columns)
    if lines is None and (num_blank := requests.check_requests(file, asked, task)):
        notify(f"{counted(num_blank, 'blank line')} of {file} without an answer")
    from orchestrator.inference.predictor import AnswerForm, Predictor  # torch among it: a wrong file is told before

    if "csv" in (form, Path(output or "").suffix[1:]) and not asked.table:
        raise click.UsageError("-f csv is for tables; answers to lines of text are JSON lines")
    answer_form = AnswerForm(asked.table, _delimiter(file, form, output) if asked.table else None)
    device = "cuda" if gpus else "cpu"
    load = partial(Predictor.load, batch_size=batch_size, device=device, form=answer_form, precision=precision)
    answers = _answers(load, folder, file, lines, workers, gpus, asked.read)
    header = answer_form.header()
    _write(answers, output, lambda pieces: write_pieces(chain([header] if header else [], pieces), output))


def _delimiter(file: str, form: str | None, output: str | None) -> str | None:
    """Sign between the fields of the answers to a table, that of the table where both are CSV; None for JSON lines."""
    from orchestrator.storage.text_lines import stream_lines
    from orchestrator.tasks.csv_tables import csv_header
    from orchestrator.tasks.text_files import plain_name

    ending = Path(plain_name(output or file)).suffix
    if form in ("json", "jsonl") or (form is None and ending in (".json", ".jsonl", ".ndjson")):
        return None
    if form is not None:
        return ","
    if ending == ".tsv":
        return "\t"
    are_csv = ending == Path(plain_name(file)).suffix == ".csv"
    delimiter = csv_header(stream_lines(file), None).delimiter if are_csv else ","
    return "," if delimiter == "\t" else delimiter  # which a name in .csv does not promise


@command(example='embed my-encoder "A charming film."\nembed my-encoder texts.jsonl.gz -o vectors.npy --workers 4')
@model_argument
@_lines_and_workers
@precision_option(default="fp32")
@output_option("Write to FILE: .npy (a matrix, a row per text), .jsonl, .json.")
@click.option("--dimensions", type=click.IntRange(1), help="Truncate vectors to their first N dimensions.")
@click.option("--as", "prompt_name", metavar="NAME", help="The model's prompt to prepend: query, document, …")
def embed(
    model: str,
    file: str,
    workers: int | None,
    gpus: float,
    precision: "AskedPrecision",
    output: str | None,
    dimensions: int | None,
    prompt_name: str | None,
) -> None:
    """Embed each line of text as a vector.

    Lines come from FILE (a path or URI; .gz, .xz and .zst are decompressed), a quoted text, or stdin: text, or JSON
    objects with text. Writes JSON lines with `embedding`. MODEL is any encoder: a sentence-transformers folder defines
    its pooling, others are mean-pooled. A model's default prompt, or its document prompt, is prepended. Empty lines
    are skipped.
    """
    suffix = Path(output or "").suffix.lower()
    if suffix not in ("", ".json", ".jsonl", ".npy"):
        raise InputError(f"{output}: vectors are written as .npy or .jsonl; name a file that ends so")
    folder = find_model(model)
    from orchestrator.inference.embedder import LineEmbedder, write_matrix
    from orchestrator.inference.text_vectors import embedding_size
    from orchestrator.storage.text_lines import stream_lines

    dimension, as_matrix = embedding_size(folder, dimensions, prompt_name), suffix == ".npy"
    computed: dict[str, Any] = {"device": "cuda" if gpus else "cpu", "precision": precision, "dimensions": dimensions}
    load = partial(LineEmbedder.load, as_matrix=as_matrix, prompt_name=prompt_name, **computed)
    answers = _answers(load, folder, file, _lines_without_file(file, workers), workers, gpus, stream_lines)
    if output is not None and as_matrix:
        num_vectors = _write(answers, output, lambda pieces: write_matrix(output_path(output), pieces, dimension))
        notify(f"{counted(num_vectors, 'vector')} of {dimension} numbers")
    else:
        _write(answers, output, lambda pieces: write_pieces(pieces, output))


def _lines_without_file(file: str, workers: int | None) -> Iterable[str] | None:
    """Lines of stdin, or the text that stands in place of FILE: words with white space between them; None for a file.

    Words that end as a file of data does are the mistyped name of one. Raises: InputError for workers, who read files.
    """
    from orchestrator.storage import exists

    is_text = len(file.split()) > 1 and not is_named_as_data(file) and not exists(file)
    if file != _STDIN and not is_text:
        return None
    if workers is not None:
        raise InputError("workers read a file; name a FILE, or leave --workers out")
    return [file] if is_text else read_stdin("reading from the terminal")


def read_stdin(what: str) -> Iterable[str]:
    """Lines of stdin; of a terminal with a word on how to end them."""
    if is_terminal(sys.stdin):
        notify(f"{what}; end with Ctrl-D")
    return click.open_file(_STDIN, encoding="utf-8", errors="surrogateescape")


def is_named_as_data(name: str) -> bool:
    """Whether a name ends as that of a file of texts, of a table or of a task does, compressed or not."""
    from orchestrator.corpus.input_files import FORMATS
    from orchestrator.storage.text_lines import COMPRESSIONS
    from orchestrator.tasks.table_files import TABLE_NAMES
    from orchestrator.tasks.types.conll import CONLL_ENDINGS

    return name.lower().endswith((*FORMATS, *TABLE_NAMES, *COMPRESSIONS, *CONLL_ENDINGS))


def _answers(
    load: "Callable[[str], LinePredictor]",
    folder: str,
    file: str,
    lines: Iterable[str] | None,
    workers: int | None,
    gpus: float,
    read: Callable[[str], Iterable[str]],
) -> "Iterator[PredictedBlock]":
    """The answers to lines, by this process; without lines to FILE, which is read here or by workers."""
    from orchestrator.inference.line_blocks import line_blocks
    from orchestrator.inference.line_files import predict_file

    if lines is None:
        return predict_file(load, folder, file, current_settings(), workers, gpus, notify, read)
    return map(load(folder), line_blocks(lines))


def _write(answers: "Iterator[PredictedBlock]", output: str | None, write: Callable[[Iterator[bytes]], T]) -> T:
    """Write the answers while they come, and tell how far they are where that does not stand among them."""
    num_truncated = 0

    def pieces(progress: Progress) -> Iterator[bytes]:
        nonlocal num_truncated
        num_lines, begun_at = 0, time.monotonic()
        for some in answers:
            yield some.data
            num_lines += some.num_lines
            num_truncated += some.num_truncated
            if output is not None or not is_terminal(sys.stdout):
                rate = num_lines / (time.monotonic() - begun_at)
                progress.status(f"{counted(num_lines, 'line')}  {rate:{',.0f' if rate >= 10 else '.2g'}} lines/s")

    with show_progress() as progress:
        written = write(pieces(progress))
    if output is not None:
        notify(f"wrote {output}")
    if num_truncated:
        notify(f"of {counted(num_truncated, 'text')} only the beginning was read: the model reads no more tokens")
    return written


@command("fill-mask", example='fill-mask my-model "Paris is the [MASK] of France."')
@model_argument
@click.argument("text")
@click.option("--top-k", type=click.IntRange(1), default=5, help="Predictions per [MASK].")
@format_options
def fill_mask(model: str, text: str, top_k: int) -> None:
    """Predict the token at each [MASK] of a text."""
    folder = find_model(model)
    from orchestrator.inference import pretraining_heads

    rows = [asdict(guess) for guess in pretraining_heads.fill_mask(folder, text, top_k)]
    show_rows(rows, ["mask", "rank", "token", "probability", "text"])


@command("next-sentence", example='next-sentence my-model "He went home." "Then he slept."')
@model_argument
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@format_options
def next_sentence(model: str, first: str, second: str) -> None:
    """Predict whether text B follows text A."""
    folder = find_model(model)
    from orchestrator.inference import pretraining_heads

    show_record(asdict(pretraining_heads.next_sentence(folder, first, second)))


@command(example="serve my-model\nserve my-model --host 0.0.0.0 --token-file token")
@model_argument
@click.option("--host", default="127.0.0.1", metavar="HOST", help="Address to bind; a non-local one needs a token.")
@port_option(default=SERVE_PORT)
@click.option("--token-file", metavar="FILE", help="File (mode 0600) with the token for requests.")
@device_option(default="cpu")
@precision_option(default="auto")
def serve(model: str, host: str, port: int, token_file: str | None, device: str, precision: "AskedPrecision") -> None:
    """Serve a model over HTTP, until Ctrl-C.

    A web page to try it and a JSON API (POST /v1/answers; GET /v1/model describes the input). A fine-tuned model
    predicts, an embedding model returns vectors, a pretrained one fills [MASK]. It listens on this machine alone;
    --host opens it to others and needs a token, in a file or in ORCHESTRATOR_SERVE_TOKEN. The connection is not
    encrypted: outside a private network, use a TLS proxy.
    """
    from orchestrator.base.web import TOKEN_VARIABLE, read_token

    token = read_token(host, token_file)
    folder = find_model(model)
    from orchestrator.inference.serving import serve_model

    ready: list[str] = []

    def on_ready(url: str, abilities: "Abilities") -> None:
        ready.append(url)
        clear_screen()
        show_text(url)
        sent = f"$(cat {shlex.quote(token_file)})" if token_file else f"${TOKEN_VARIABLE}"  # as a shell reads it
        header = f' -H "Authorization: Bearer {sent}"' if token else ""
        body = shlex.quote(json.dumps({"inputs": [abilities.example]}, ensure_ascii=False))
        notify(
            f"{model} ({abilities.head}) answers there: a page to try it; as JSON:\n"
            f"  curl {url}/v1/answers{header} -H 'Content-Type: application/json' \\\n    -d {body}\nCtrl-C ends it"
        )

    try:
        serve_model(model, folder, on_ready, host=host, port=port, device=device, token=token, precision=precision)
    except KeyboardInterrupt:
        if not ready:
            raise
    notify(f"stopped: {model} is no longer served")
