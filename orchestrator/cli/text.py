"""`corpus` and `tokenizer`: text, and how it is tokenized."""

from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Literal

import click

from orchestrator.cli.frame import GlobalOptionsGroup, current_settings
from orchestrator.cli.messages import notify, say_now
from orchestrator.cli.output import show_record, show_rows
from orchestrator.cli.reading import format_options, output_options
from orchestrator.cli.showing import load_tokenizer, show, source_options, text_source
from orchestrator.progress import counted

if TYPE_CHECKING:
    pass


_DOCUMENTS_LOOKED_AT = 1000


@click.group(cls=GlobalOptionsGroup)
def corpus() -> None:
    """Inspect text for pretraining."""


@corpus.command(example="orchestrator corpus inspect data/pretrain")
@source_options
@click.option("--max-documents", type=click.IntRange(1), help="Maximum number of documents.")
@output_options
def inspect(
    files: tuple[str, ...],
    input_format: str,
    text_field: str,
    on_bad_record: str,
    max_documents: int | None,
    form: str | None,
    output: str | None,
) -> None:
    """Count documents, sentences, words and bad records per file.

    FILE: files, folders, globs or URIs; .gz, .xz and .zst are decompressed. Bad records are counted, whatever
    --on-bad-record says.
    """
    say_now("reading the text")
    from orchestrator.corpus.preview import inspect_corpus

    source = text_source(files, input_format, text_field, on_bad_record, max_documents)
    found = []
    for file in inspect_corpus(source):
        found.append(file)
        if form in (None, "table"):
            notify(f"{file.path}: {counted(file.num_documents, 'document')}")
            if file.first_problem:
                notify(f"  first problem: {file.first_problem}")
            for beginning in file.sample[:1]:
                notify(f"  begins: {beginning}")
    counts = ["num_bytes", "num_documents", "num_sentences", "num_words", "num_characters", "num_bad_records"]
    lengths = ["median_sentence_words", "long_sentence_words"]
    rows = [asdict(file) for file in found]
    if len(rows) > 1 and form in (None, "table"):
        rows.append({"path": "all", **{name: sum(row[name] for row in rows) for name in counts}})
    columns = ["path", "format", *counts, *lengths]
    if form not in (None, "table"):
        columns += ["first_problem", "sample"]
    spare = ["num_characters", "num_bytes", "format", "long_sentence_words", "median_sentence_words"]
    show_rows(rows, columns, form, output, spare=spare)


corpus.add_command(show)


@click.group(cls=GlobalOptionsGroup)
def tokenizer() -> None:
    """Train and measure tokenizers."""


@tokenizer.command(example="orchestrator tokenizer train data --vocab-size 8000 -o tokenizers/wiki")
@source_options
@click.option("-o", "--output", required=True, metavar="FOLDER", help="New folder for tokenizer.json.")
@click.option(
    "--model",
    "algorithm",
    type=click.Choice(["wordpiece", "byte_bpe", "unigram"]),
    default="wordpiece",
    show_default=True,
    help="Algorithm: of BERT, RoBERTa or ALBERT.",
)
@click.option(
    "--vocab-size", type=click.IntRange(100, 1_000_000), default=30522, show_default=True, help="Vocabulary size."
)
@click.option("--cased", is_flag=True, help="Keep case and accents.")
@click.option("--keep-accents", is_flag=True, help="Lowercase, but keep accents.")
@click.option(
    "--min-frequency", type=click.IntRange(1), default=2, show_default=True, help="Minimum frequency of a merge."
)
@click.option("--max-bytes", type=click.IntRange(1024), default=1 << 30, hidden=True)
@click.option(
    "--sampling-exponent",
    type=click.FloatRange(0.0, 1.0),
    default=1.0,
    show_default=True,
    help="Sample each FILE (a language) by its share to this power; mBERT: 0.7.",
)
@format_options
def train(
    files: tuple[str, ...],
    input_format: str,
    text_field: str,
    on_bad_record: str,
    output: str,
    algorithm: Literal["wordpiece", "byte_bpe", "unigram"],
    vocab_size: int,
    cased: bool,
    keep_accents: bool,
    min_frequency: int,
    max_bytes: int,
    sampling_exponent: float,
    form: str | None,
) -> None:
    """Train a tokenizer.

    FILE: files, folders, globs or URIs. Writes a folder that Hugging Face's libraries read, and prints how the
    tokenizer fits held-out text.
    """
    say_now(f"training a tokenizer of {vocab_size:,} entries")
    from bert_core.text.tokenization import Tokenizer
    from orchestrator.corpus.tokenizer_job import tokenizer_notes, train_tokenizer
    from orchestrator.errors import InputError
    from orchestrator.specs import TokenizerSpec
    from orchestrator.storage import local_copy, names_in

    if names_in(output):
        raise InputError(f"{output} is there already and not empty; give another -o, or delete it first")
    spec = TokenizerSpec(
        corpus=text_source(files, input_format, text_field, on_bad_record, sampling_exponent=sampling_exponent),
        algorithm=algorithm,
        vocab_size=vocab_size,
        lowercase=not cased,
        strip_accents=False if keep_accents else None,
        min_frequency=min_frequency,
        max_bytes=max_bytes,
    )
    result = train_tokenizer(spec, current_settings().storage)
    Tokenizer.load(local_copy(result.folder)).save(output)
    notify(f"saved to {output}")
    for note in tokenizer_notes(spec, result):
        notify(note)
    show_record({"folder": output, "vocab_size": result.vocab_size, **result.report}, form, None)


@tokenizer.command(example="orchestrator tokenizer report tokenizers/wiki data/wikinews.jsonl.xz")
@click.argument("tokenizer_path", metavar="TOKENIZER")
@source_options
@click.option(
    "--max-documents",
    type=click.IntRange(1),
    default=_DOCUMENTS_LOOKED_AT,
    show_default=True,
    help="Maximum number of documents.",
)
@output_options
def report(
    tokenizer_path: str,
    files: tuple[str, ...],
    input_format: str,
    text_field: str,
    on_bad_record: str,
    max_documents: int,
    form: str | None,
    output: str | None,
) -> None:
    """Measure how a tokenizer fits a text.

    Tokens per word (fertility), unknown tokens per word, characters per token.
    """
    from orchestrator.corpus.document_batches import read_corpus
    from orchestrator.corpus.tokenizer_job import tokenizer_report
    from orchestrator.errors import CorpusError

    tokenizer = load_tokenizer(tokenizer_path)
    source = text_source(files, input_format, text_field, on_bad_record, max_documents)
    texts = (document.text for document in islice(read_corpus(source), max_documents))
    found = tokenizer_report(tokenizer, texts)
    if not found:
        raise CorpusError(f"{', '.join(files)}: the text holds no word to judge the tokenizer by")
    record = {"tokenizer": tokenizer_path, "vocab_size": tokenizer.vocab_size, "lowercase": tokenizer.lowercase}
    show_record(record | found, form, output)
