"""`corpus` and `tokenizer`: text, the examples that are made of it, and how it is tokenized."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

import click

from orchestrator.base.console import counted, terminal_width
from orchestrator.base.console.log_lines import wrapped
from orchestrator.base.formatting import printable
from orchestrator.cli.frame import GlobalOptionsGroup, current_settings, refuse_options
from orchestrator.cli.messages import notify, say_now
from orchestrator.cli.output import show_record, show_rows, show_text
from orchestrator.cli.reading import current_reading, format_options, options, output_options

if TYPE_CHECKING:
    from bert_core.text.tokenization import Tokenizer
    from orchestrator.corpus.preview import ExamplePreview, Origin, SentencePreview
    from orchestrator.specs import PretrainSpec, TextSource

_clean = partial(printable, keep_lines=False)
_formats = click.Choice(["auto", "text", "jsonl", "parquet"])
_source_options = options(
    click.option("--input-format", "format", type=_formats, default="auto", hidden=True),
    click.option("--text-field", default="text", metavar="FIELD", help="JSON key or column with the text."),
    click.option(
        "--on-bad-record",
        type=click.Choice(["error", "skip", "replace"]),
        default="error",
        help="Bad records: fail, skip, or replace invalid bytes.",
    ),
)
"""Fields of a `TextSource`: how files of text are read."""
_files_argument = click.argument("files", metavar="FILE...", nargs=-1, required=True)


@click.group(cls=GlobalOptionsGroup)
def corpus() -> None:
    """Inspect text for pretraining."""


@corpus.command(example="corpus inspect data/pretrain")
@_files_argument
@_source_options
@click.option("--max-documents", type=click.IntRange(1), help="Maximum number of documents.")
@output_options
def inspect(**source: Any) -> None:
    """Count documents, sentences, words and bad records per file.

    FILE: files, folders, globs or URIs; .gz, .xz and .zst are decompressed. Bad records are counted and never end the
    command.
    """
    say_now("reading the text")
    from orchestrator.corpus.inspection import inspect_corpus
    from orchestrator.specs import TextSource

    is_table, rows = current_reading().form == "table", []
    for file in inspect_corpus(TextSource(**source)):
        rows.append(asdict(file))
        if is_table:
            notify(f"{file.path}: {counted(file.num_documents, 'document')}")
            if file.first_problem:
                notify(f"  first problem: {file.first_problem}")
            for beginning in file.sample[:1]:
                notify(f"  begins: {beginning}")
    counts = ["num_bytes", "num_documents", "num_sentences", "num_words", "num_characters", "num_bad_records"]
    if len(rows) > 1 and is_table:
        rows.append({"path": "all", **{name: sum(row[name] for row in rows) for name in counts}})
    if rows and all(row["num_sentences"] == row["num_documents"] for row in rows):
        notify("each document is one sentence: sentence_objective next_sentence would have one answer for all")
    columns = ["path", "format", *counts, "median_sentence_words", "long_sentence_words"]
    columns += [] if is_table else ["first_problem", "sample"]
    spare = ["num_characters", "num_bytes", "format", "long_sentence_words", "median_sentence_words"]
    show_rows(rows, columns, spare=spare)


@corpus.command(
    example="corpus show notes/*.txt.gz --tokenizer tokenizers/notes\n"
    "corpus show experiments/pretrain_base.yaml --num 1"
)
@click.argument("arguments", metavar="FILE...|SPEC.yaml [KEY=VALUE...]", nargs=-1, required=True)
@click.option("--tokenizer", metavar="NAME", help="Show the tokens of each sentence of FILE.")
@_source_options
@click.option("--num", "number", type=click.IntRange(1), default=3, help="Number of documents or examples.")
@click.option("--epoch", type=click.IntRange(0), default=0, help="Epoch of the examples.")
@click.option("--from", "first", type=click.IntRange(0), default=0, help="Index of the first example.")
@click.option("--phase", type=click.IntRange(0), default=0, help="Index of the pretraining phase.")
@output_options
def show(
    arguments: tuple[str, ...], tokenizer: str | None, number: int, epoch: int, first: int, phase: int, **source: Any
) -> None:
    """Show documents of files, or training examples of a spec.

    FILE...: the first documents, a sentence per line. SPEC.yaml: masked examples of its first pretraining, exactly as a
    run will see them, with sentence-pair labels and the original token next to each masked one. Epochs, examples and
    phases count from 0.
    """
    reading = current_reading()
    if reading.form == "table":
        refuse_options(("columns", "limit", "offset"), "goes with -f json or csv; the text takes --num")
    width = terminal_width(sys.stdout) if reading.output is None else None
    rows: Sequence[SentencePreview | ExamplePreview]
    if arguments[0].endswith((".yaml", ".yml")):
        refuse_options(("tokenizer", *source), f"concerns FILE, and {arguments[0]} is a spec")
        from bert_core.objectives import TOKEN_OBJECTIVES

        spec, origin, rows = _read_examples(arguments[0], arguments[1:], phase, epoch, first, number)
        if reading.form == "table":
            notify(f"{_ORIGINS[origin]}\npredicted: {TOKEN_OBJECTIVES[spec.token_objective].summary}")
            if any(token.change for row in rows for token in row.tokens):
                notify("cat→[MASK] hidden by the mask · cat→dog by a random token · cat→cat kept")
        lines, shared = _example_lines(rows, width or 80, spec.steps != "auto"), {"made_from": origin}
    else:
        refuse_options(("epoch", "first", "phase"), f"concerns SPEC.yaml, and {arguments[0]} is a file of text")
        from orchestrator.specs import TextSource

        rows = _read_sentences(TextSource(files=arguments, max_documents=number, **source), tokenizer)
        lines, shared = _document_lines(rows, width or sys.maxsize), {}
    if reading.form == "table":
        show_text("\n".join(lines).rstrip("\n"), reading.output)
        return
    records = [shared | asdict(row) for row in rows]
    show_rows(records, [name for name in records[0] if name != "pieces" or tokenizer])


def _read_sentences(source: "TextSource", tokenizer: str | None) -> "Sequence[SentencePreview]":
    """Sentences of the first documents. Raises: CorpusError where there is none."""
    from orchestrator.base.errors import CorpusError
    from orchestrator.corpus.document_batches import read_corpus
    from orchestrator.corpus.preview import preview_sentences

    cutter = None if tokenizer is None else _load_tokenizer(tokenizer)
    sentences = list(preview_sentences(read_corpus(source), cutter))
    if not sentences:
        raise CorpusError(f"{', '.join(source.files)}: no document with text; name other files or another --text-field")
    return sentences


_FEW_STEPS = 1000
"""Steps by which examples are shown of a run that has no number yet; examples are the same for any number."""


def _read_examples(
    path: str, overrides: Sequence[str], phase: int, epoch: int, first: int, num_examples: int
) -> "tuple[PretrainSpec, Origin, Sequence[ExamplePreview]]":
    """The spec, where its text comes from, and examples. Raises: SpecError, InputError for what a run has not."""
    from orchestrator.base.errors import InputError, SpecError
    from orchestrator.corpus.preview import open_sample_store, preview_examples
    from orchestrator.corpus.stream import SplitShards
    from orchestrator.pretraining.streams import build_stream
    from orchestrator.specs.loading import load_spec
    from orchestrator.specs.references import resolve_references

    stages = (loaded := load_spec(path, overrides)).stage_specs()
    asked = cast("PretrainSpec | None", next((some for some in stages.values() if some.kind == "pretrain"), None))
    if asked is None:
        raise SpecError(f"{path}: kind is {loaded.kind}, and only pretrain has training examples; name such a spec")
    settled = asked.with_steps(_FEW_STEPS) if asked.steps == "auto" else asked
    spec = resolve_references(settled, {name: f"{loaded.name}/{name}" for name in stages})
    if phase >= len(spec.phases):
        raise InputError(f"--phase {phase} is too large: the last phase of {path} is {len(spec.phases) - 1}")
    tokenizer, storage = _load_tokenizer(spec.tokenizer), current_settings().storage
    say_now("reading the text")
    with open_sample_store(spec.corpus, tokenizer, spec.validation_fraction, spec.shard_bytes, storage) as sample:
        stream = build_stream(spec, SplitShards(sample.store, "train"), tokenizer)
        last = stream.examples_per_epoch(phase) - 1
        if first > last:
            raise InputError(f"--from {first} is too large: the last example of an epoch is {last}")
        rows = preview_examples(stream, tokenizer, phase, epoch, first, num_examples)
        return asked, sample.origin, [replace(row, step=None) for row in rows] if asked.steps == "auto" else rows


def _load_tokenizer(name: str) -> "Tokenizer":
    """The tokenizer that a name means, as in specs. Raises: NotFoundError, TokenizerError."""
    from bert_core.text.tokenization import Tokenizer
    from orchestrator.registry.model_names import resolve_name
    from orchestrator.storage import local_copy

    return Tokenizer.load(local_copy(resolve_name("tokenizer", name, current_settings()), skip=("model.safetensors",)))


_ORIGINS: dict["Origin", str] = {
    "token_store": "these are the run's own examples, from its token store",
    "whole_text": "no token store yet; these are the run's own examples, from the whole text",
    "first_text": "no token store yet; made like the run's own examples, but from the first few MB of text alone",
}


def _document_lines(sentences: "Sequence[SentencePreview]", width: int) -> Iterator[str]:
    """Lines of documents: each sentence, and below it its word pieces."""
    for document, group in groupby(sentences, key=lambda sentence: sentence.document):
        members = list(group)
        yield f"{_clean(document)}: {counted(len(members), 'sentence')}"
        for sentence in members:
            yield from _indented(_clean(sentence.text), "  ", "      ", width)
            if sentence.pieces is not None:
                pieces = _clean(" ".join(sentence.pieces)) or "(no word piece: left out)"
                yield from _indented(pieces, "    ", "      ", width)
        yield ""


def _example_lines(previews: "Sequence[ExamplePreview]", width: int, has_steps: bool) -> Iterator[str]:
    """Lines of examples: what it is, its label, and a paragraph for each segment."""
    for preview in previews:
        num_hidden = sum(token.change is not None for token in preview.tokens)
        about = [
            f"example {preview.example} of epoch {preview.epoch}",
            *(["after the end" if preview.step is None else f"step {preview.step}"] if has_steps else []),
            f"{len(preview.tokens)} tokens, no padding",
            *([f"{num_hidden} hidden"] if num_hidden else []),
        ]
        yield " · ".join(about)
        is_pair = preview.sentence_label is not None
        if is_pair:
            yield f"  label {preview.sentence_label}: {preview.sentence_answer}"
        for segment, tokens in groupby(preview.tokens, key=lambda token: token.segment):
            first, others = (f"  {'AB'[segment]}  ", "     ") if is_pair else ("  ", "    ")
            words = (f"{token.truth}→{token.token}" if token.change else token.token for token in tokens)
            yield from _indented(_clean(" ".join(words)), first, others, width)
        yield ""


def _indented(text: str, first: str, others: str, width: int) -> Iterator[str]:
    for number, line in enumerate(wrapped(text, max(20, width - len(others)))):
        yield f"{others if number else first}{line}"


@click.group(cls=GlobalOptionsGroup)
def tokenizer() -> None:
    """Train and measure tokenizers."""


@tokenizer.command(example="tokenizer train data --vocab-size 8000 -o tokenizers/wiki")
@_files_argument
@_source_options
@click.option("-o", "--output", required=True, metavar="FOLDER", help="New folder for tokenizer.json.")
@click.option(
    "--model",
    "algorithm",
    type=click.Choice(["wordpiece", "byte_bpe", "unigram"]),
    default="wordpiece",
    help="Algorithm, as in BERT, RoBERTa and ALBERT.",
)
@click.option("--vocab-size", type=click.IntRange(100, 1_000_000), default=30522, help="Vocabulary size.")
@click.option("--cased", is_flag=True, help="Keep case and accents.")
@click.option("--keep-accents", is_flag=True, help="Lowercase, but keep accents.")
@click.option("--min-frequency", type=click.IntRange(1), default=2, help="Minimum frequency of a merged pair.")
@click.option("--max-bytes", type=click.IntRange(1024), default=1 << 30, hidden=True)
@click.option(
    "--sampling-exponent",
    type=click.FloatRange(0.0, 1.0),
    default=1.0,
    help="Sample each FILE (a language) by its share to this power; mBERT: 0.7.",
)
@format_options
def train(output: str, cased: bool, keep_accents: bool, **asked: Any) -> None:
    """Train a tokenizer.

    FILE: files, folders, globs or URIs. Writes a folder that Hugging Face's libraries read, and prints how the
    tokenizer fits held-out text.
    """
    say_now(f"training a tokenizer of {asked['vocab_size']:,} entries")
    from bert_core.text.tokenization import Tokenizer
    from orchestrator.base.errors import InputError
    from orchestrator.corpus.tokenizer_job import tokenizer_notes, train_tokenizer
    from orchestrator.specs import TextSource, TokenizerSpec
    from orchestrator.storage import local_copy, names_in

    if names_in(output):
        raise InputError(f"{output} is there already and not empty; give another -o, or delete it first")
    own = {name: asked.pop(name) for name in asked.keys() & TokenizerSpec.model_fields.keys()}
    accents = False if keep_accents else None
    spec = TokenizerSpec(corpus=TextSource(**asked), lowercase=not cased, strip_accents=accents, **own)
    result = train_tokenizer(spec, current_settings().storage)
    Tokenizer.load(local_copy(result.folder)).save(output)
    notify(f"saved to {output}")
    for note in tokenizer_notes(spec, result):
        notify(note)
    show_record({"folder": output, "vocab_size": result.vocab_size, **result.report})


@tokenizer.command(example="tokenizer report tokenizers/wiki data/wikinews.jsonl.xz")
@click.argument("name", metavar="TOKENIZER")
@_files_argument
@_source_options
@click.option("--max-documents", type=click.IntRange(1), default=1000, help="Maximum number of documents.")
@output_options
def report(name: str, **source: Any) -> None:
    """Measure how a tokenizer fits a text.

    Fertility is the number of tokens per word, 1 at least; unknown_rate counts unknown tokens per word. To compare
    tokenizers of different algorithms use characters_per_token. Take text that was not used for training.
    """
    from orchestrator.base.errors import CorpusError
    from orchestrator.corpus.document_batches import read_corpus
    from orchestrator.corpus.tokenizer_job import tokenizer_report
    from orchestrator.specs import TextSource

    tokenizer = _load_tokenizer(name)
    found = tokenizer_report(tokenizer, (document.text for document in read_corpus(TextSource(**source))))
    if not found:
        raise CorpusError(f"{', '.join(source['files'])}: the text holds no word to judge the tokenizer by")
    show_record({"tokenizer": name, "vocab_size": tokenizer.vocab_size, "lowercase": tokenizer.lowercase} | found)
