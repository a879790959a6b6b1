"""Training of a tokenizer on a corpus, saved by its key under STORAGE/tokenizers; a report on how it cuts a text."""

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from itertools import islice
from pathlib import Path

from bert_core.text.tokenization import MUCH_UNKNOWN, Tokenizer
from bert_core.text.tokenizer_training import TRAINERS
from orchestrator.base.console import counted
from orchestrator.base.results import TokenizerResult
from orchestrator.corpus.document_batches import is_validation, no_text, read_corpus
from orchestrator.corpus.input_files import find_files
from orchestrator.specs import TokenizerSpec
from orchestrator.storage import digest_file, join, read_json, write_bytes, write_json

_FORMAT = "tokenizer-1"
_MANIFEST = "manifest.json"
VALIDATION_FRACTION = 0.02
"""Share of the documents that the report is computed on, and that the vocabulary is not learned from."""
VALIDATION_BYTES = 4 << 20
"""Largest size of these documents together, so that they fit in memory; further ones are trained on."""


def train_tokenizer(spec: TokenizerSpec, storage: str) -> TokenizerResult:
    """Learn a vocabulary, unless the same one was learned from the same files before.

    Raises: CorpusError for text that is missing, empty or broken.
    """
    folder = join(storage, "tokenizers", _key(spec))
    if kept := _load_kept(folder):
        return kept
    validation: list[str] = []
    tokenizer = _train(spec, _training_texts(spec, validation))
    report = tokenizer_report(tokenizer, validation)
    _save(tokenizer, folder, report)
    return TokenizerResult(folder, tokenizer.fingerprint, tokenizer.vocab_size, report)


def train_on_first_text(spec: TokenizerSpec, num_bytes: int) -> Tokenizer:
    """Learn a vocabulary of the first text alone, about so many bytes; nothing is kept.

    Raises: CorpusError for text that is missing, empty or broken.
    """
    return _train(spec, _first_paragraphs(spec, num_bytes))


def _train(spec: TokenizerSpec, texts: Iterable[str]) -> Tokenizer:
    train = TRAINERS[spec.algorithm]
    return train(texts, spec.vocab_size, spec.lowercase, spec.min_frequency, spec.strip_accents)


def _first_paragraphs(spec: TokenizerSpec, num_bytes: int) -> Iterator[str]:
    """Paragraphs of the first text; the last document of it is cut."""
    room = num_bytes
    for document in read_corpus(spec.corpus):
        text = document.text[: max(1, room)]
        room -= len(text.encode())
        yield from text.split("\n")
        if room <= 0:
            return


def tokenizer_notes(spec: TokenizerSpec, result: TokenizerResult) -> Iterator[str]:
    """Yield what is not plain from a result: why the vocabulary is smaller than asked for, and what was scored."""
    if result.vocab_size < spec.vocab_size:
        yield (
            f"{result.vocab_size:,} entries in place of {spec.vocab_size:,}: the text gives no more whose parts occur "
            f"together at least {counted(spec.min_frequency, 'time')} (min_frequency); "
            "more text gives more"
        )
    unknown_rate = result.report.get("unknown_rate", 0.0)
    if unknown_rate > MUCH_UNKNOWN:
        yield (
            f"{unknown_rate:.0%} of the words are unknown ([UNK]), as the vocabulary has no room for their characters: "
            "raise vocab_size, or train byte_bpe, to which no character is unknown"
        )
    if num_words := result.report.get("num_words"):
        yield (
            f"scored on {num_words:,.0f} words of the documents that were kept out of learning, "
            f"{VALIDATION_FRACTION:.0%} of them"
        )
    else:
        yield f"not scored: too few documents to keep {VALIDATION_FRACTION:.0%} of them out of learning"


def tokenizer_report(tokenizer: Tokenizer, texts: Iterable[str]) -> dict[str, float]:
    """Report on how a tokenizer cuts texts; empty when they have no word.

    `fertility`: pieces per word (Ács 2019), words being cut as this tokenizer does it, WordPiece at space and
    punctuation; `unknown_rate`: unknown tokens per word; `characters_per_token`: without white space, the number by
    which tokenizers of different kinds compare.
    """
    num_words = num_tokens = num_unknown = num_characters = 0
    paragraphs = (paragraph for text in texts for paragraph in text.split("\n") if paragraph)
    while batch := list(islice(paragraphs, 1024)):
        num_characters += sum(len("".join(paragraph.split())) for paragraph in batch)
        for encoding in tokenizer.encode_batch(batch):
            num_tokens += len(encoding.ids)
            num_unknown += encoding.ids.count(tokenizer.unk_id)
            num_words += len(set(encoding.word_ids))
    if not num_words:
        return {}
    return {
        "fertility": num_tokens / num_words,
        "unknown_rate": num_unknown / num_words,
        "characters_per_token": num_characters / num_tokens,
        "num_words": float(num_words),
    }


def _key(spec: TokenizerSpec) -> str:
    seen = [[file.path, file.num_bytes, file.version] for file in find_files(spec.corpus)]
    parts = {"spec": spec.fingerprint(), "files": seen, "format": _FORMAT, "tokenizers": version("tokenizers")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _training_texts(spec: TokenizerSpec, validation: list[str]) -> Iterator[str]:
    """Texts to learn from; the texts for the report are added to `validation`."""
    room, empty = VALIDATION_BYTES, True
    for document in read_corpus(spec.corpus, spec.max_bytes):
        empty, num_bytes = False, len(document.text.encode())
        if is_validation(document.text, VALIDATION_FRACTION) and num_bytes <= room:
            room -= num_bytes
            validation.append(document.text)
        else:
            # One paragraph at a time: the library takes many times a text's size while it works on it.
            yield from document.text.split("\n")
    if empty:
        raise no_text(spec.corpus)


def _save(tokenizer: Tokenizer, folder: str, report: dict[str, float]) -> None:
    """Save the tokenizer's files, and the manifest last: a folder without one is not used."""
    with tempfile.TemporaryDirectory() as temporary:
        tokenizer.save(temporary)
        digests = {
            file.name: write_bytes(join(folder, file.name), file.read_bytes()) for file in Path(temporary).iterdir()
        }
    facts = {"fingerprint": tokenizer.fingerprint, "vocab_size": tokenizer.vocab_size, "report": report}
    write_json(join(folder, _MANIFEST), {"format": _FORMAT, **facts, "files": digests})


def _load_kept(folder: str) -> TokenizerResult | None:
    """The tokenizer that was trained before; None where there is none, or its files were damaged since."""
    try:
        manifest = read_json(join(folder, _MANIFEST))
        if all(digest_file(join(folder, name)) == digest for name, digest in manifest["files"].items()):
            return TokenizerResult(folder, manifest["fingerprint"], manifest["vocab_size"], manifest["report"])
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        pass
    return None
