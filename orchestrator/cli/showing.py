"""`corpus show`: what a model will read, as documents of files or as training examples of a spec."""

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrator.cells import printable
from orchestrator.cli.frame import GlobalOptionsCommand, current_settings, refuse_options
from orchestrator.cli.messages import notify, status_line
from orchestrator.cli.output import chosen_form, show_lines, show_rows
from orchestrator.cli.reading import output_options
from orchestrator.progress import counted, is_terminal

if TYPE_CHECKING:
    from rich.text import Text

    from bert_core.text.tokenization import Tokenizer
    from orchestrator.corpus.preview import ExamplePreview, Origin, SentencePreview, TokenPreview
    from orchestrator.specs import PretrainSpec, TextSource

_SPEC_ENDINGS = (".yaml", ".yml")
_FOR_FILES = ("tokenizer", "input_format", "text_field", "on_bad_record")
_FOR_SPECS = ("epoch", "first", "phase")
_STYLES = {"masked": "cyan", "replaced": "yellow", "kept": "green"}
_PIPED_WIDTH = 80
_ORIGINS: dict["Origin", str] = {
    "token_store": "these are the run's own examples, from its token store",
    "whole_text": "no token store yet; these are the run's own examples, from the whole text",
    "first_text": "no token store yet; made like the run's own examples, but from the first few MB of text alone",
}


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
            help="Bad records: fail, skip, or replace invalid bytes.",
        ),
        click.option(
            "--text-field", default="text", show_default=True, metavar="FIELD", help="JSON key or column with the text."
        ),
        click.option("--input-format", type=_FORMATS, default="auto", hidden=True),
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


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator corpus show notes/*.txt.gz --tokenizer tokenizers/notes\n"
    "orchestrator corpus show experiments/pretrain_base.yaml --num 1",
)
@click.argument("arguments", metavar="FILE...|SPEC.yaml [KEY=VALUE...]", nargs=-1, required=True)
@click.option("--tokenizer", metavar="NAME", help="Show the tokens of each sentence of FILE.")
@reading_text_options
@click.option(
    "--num", "number", type=click.IntRange(1), default=3, show_default=True, help="Number of documents or examples."
)
@click.option("--epoch", type=click.IntRange(0), default=0, show_default=True, help="Epoch of the examples.")
@click.option(
    "--from",
    "first",
    metavar="EXAMPLE",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Index of the first example in the epoch.",
)
@click.option("--phase", type=click.IntRange(0), default=0, show_default=True, help="Index of the pretraining phase.")
@output_options
def show(
    arguments: tuple[str, ...],
    tokenizer: str | None,
    input_format: str,
    text_field: str,
    on_bad_record: str,
    number: int,
    epoch: int,
    first: int,
    phase: int,
    form: str | None,
    output: str | None,
) -> None:
    """Show documents of files, or training examples of a spec.

    FILE...: the first documents, a sentence per line. SPEC.yaml: masked examples of a pretraining spec, exactly as its
    run will see them, with sentence-pair labels and the original token next to each masked one. Epochs, examples and
    phases count from 0.
    """
    if arguments[0].endswith(_SPEC_ENDINGS):
        refuse_options(_FOR_FILES, f"concerns FILE, and {arguments[0]} is a spec")
        _show_examples(arguments[0], arguments[1:], phase, epoch, first, number, form, output)
    else:
        refuse_options(_FOR_SPECS, f"concerns SPEC.yaml, and {arguments[0]} is a file of text")
        source = text_source(arguments, input_format, text_field, on_bad_record, number)
        _show_documents(source, tokenizer, form, output)


def _show_documents(source: "TextSource", tokenizer_name: str | None, form: str | None, output: str | None) -> None:
    from orchestrator.corpus.document_batches import read_corpus
    from orchestrator.corpus.preview import preview_sentences
    from orchestrator.errors import CorpusError

    tokenizer = None if tokenizer_name is None else load_tokenizer(tokenizer_name)
    sentences = list(preview_sentences(islice(read_corpus(source), source.max_documents), tokenizer))
    if not sentences:
        raise CorpusError(f"{', '.join(source.files)}: no document with text; name other files or another --text-field")
    if chosen_form(form, output) == "table":
        show_lines(_document_lines(sentences, is_wrapped=output is None and is_terminal(sys.stdout)), output)
    else:
        columns = ["document", "text"] if tokenizer is None else ["document", "text", "pieces"]
        show_rows([asdict(sentence) for sentence in sentences], columns, form, output)


def _show_examples(
    path: str,
    overrides: tuple[str, ...],
    phase: int,
    epoch: int,
    first: int,
    num_examples: int,
    form: str | None,
    output: str | None,
) -> None:
    from orchestrator.corpus.preview import open_sample_store, preview_examples
    from orchestrator.corpus.stream import SplitShards
    from orchestrator.errors import InputError
    from orchestrator.pretraining.streams import build_stream

    spec = _load_pretraining(path, overrides)
    if phase >= len(spec.phases):
        raise InputError(f"--phase {phase} is too large: the last phase of {path} is {len(spec.phases) - 1}")
    tokenizer, storage = load_tokenizer(spec.tokenizer), current_settings().storage
    with status_line() as status:
        status("reading the text")
        with open_sample_store(spec.corpus, tokenizer, spec.validation_fraction, spec.shard_bytes, storage) as sample:
            stream = build_stream(spec, SplitShards(sample.store, "train"), tokenizer)
            last = stream.examples_per_epoch(phase) - 1
            if first > last:
                raise InputError(f"--from {first} is too large: the last example of an epoch is {last}")
            previews = preview_examples(stream, tokenizer, phase, epoch, first, num_examples)
    if chosen_form(form, output) == "table":
        _explain(spec, sample.origin, previews)
        show_lines(_example_lines(previews), output)
    else:
        origin = {"made_from": sample.origin}
        rows = [origin | asdict(preview) for preview in previews]
        show_rows(rows, list(rows[0]), form, output)


def load_tokenizer(name: str) -> "Tokenizer":
    """The tokenizer that a name means, as in specs. Raises: NotFoundError, TokenizerError."""
    from bert_core.text.tokenization import Tokenizer
    from orchestrator.models.resolve import resolve_name
    from orchestrator.storage import local_copy

    return Tokenizer.load(local_copy(resolve_name("tokenizer", name, current_settings()), skip=("model.safetensors",)))


def _load_pretraining(path: str, overrides: tuple[str, ...]) -> "PretrainSpec":
    from orchestrator.errors import SpecError
    from orchestrator.specs import PretrainSpec
    from orchestrator.specs.loading import load_spec

    spec = load_spec(path, overrides)
    if not isinstance(spec, PretrainSpec):
        raise SpecError(
            f"{path}: kind is {spec.kind}, and only pretrain has training examples; name a spec of that kind"
        )
    return spec


def _document_lines(sentences: Sequence["SentencePreview"], *, is_wrapped: bool) -> Iterator["Text"]:
    """Lines of documents: on a terminal wrapped, else one sentence on a line and its word pieces on the next."""
    from rich.text import Text

    for document, group in groupby(sentences, key=lambda sentence: sentence.document):
        members = list(group)
        yield Text(f"{_clean(document)}: {counted(len(members), 'sentence')}", "bold")
        for sentence in members:
            texts = [Text(_clean(sentence.text))]
            if sentence.pieces is not None:
                texts.append(Text(_clean(" ".join(sentence.pieces)) or "(no word piece: left out)", "dim"))
            for depth, text in enumerate(texts, start=1):
                yield from _indented(text, "  " * depth, "      ") if is_wrapped else [Text("  " * depth) + text]
        yield Text()


def _example_lines(previews: Sequence["ExamplePreview"]) -> Iterator["Text"]:
    """Lines of examples, wrapped: what it is, its label, and a paragraph for each segment."""
    from rich.text import Text

    for preview in previews:
        num_hidden = sum(token.change is not None for token in preview.tokens)
        about = [
            f"example {preview.example} of epoch {preview.epoch}",
            "after the end" if preview.step is None else f"step {preview.step}",
            f"{len(preview.tokens)} tokens, no padding",
            *([f"{num_hidden} hidden"] if num_hidden else []),
        ]
        yield Text(" · ".join(about), "bold")
        is_pair = preview.sentence_label is not None
        if is_pair:
            yield Text(f"  label {preview.sentence_label}: {preview.sentence_answer}")
        for segment, tokens in groupby(preview.tokens, key=lambda token: token.segment):
            paragraph = Text(" ").join(_token_text(token) for token in tokens)
            yield from _indented(paragraph, f"  {'AB'[segment]}  " if is_pair else "  ", "     " if is_pair else "    ")
        yield Text()


def _token_text(token: "TokenPreview") -> "Text":
    """Text of one token; before a hidden one the true token stands, with an arrow between."""
    from rich.text import Text

    if token.change is None:
        return Text(_clean(token.token), "dim" if token.is_special else "")
    return Text(f"{_clean(token.truth or '')}→{_clean(token.token)}", _STYLES[token.change])


def _indented(text: "Text", first: str, others: str) -> Iterator["Text"]:
    """Lines of a text that is wrapped to the terminal's width; in pipes and files to 80 columns."""
    from rich.console import Console
    from rich.text import Text

    width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else _PIPED_WIDTH
    lines = text.wrap(Console(width=width), max(20, width - len(others)))
    for number, line in enumerate(lines):
        line.rstrip()
        yield Text(others if number else first) + line


def _explain(spec: "PretrainSpec", origin: "Origin", previews: Sequence["ExamplePreview"]) -> None:
    """Tell a person where the examples are from and how to read them."""
    from bert_core.objectives import TOKEN_OBJECTIVES

    notify(_ORIGINS[origin])
    notify(f"predicted: {TOKEN_OBJECTIVES[spec.token_objective].summary}")
    changes = {token.change for preview in previews for token in preview.tokens}
    if changes - {None}:
        notify("cat→[MASK] hidden by the mask · cat→dog by a random token · cat→cat kept")


def _clean(text: str) -> str:
    return printable(text, keep_lines=False)
