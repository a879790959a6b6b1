"""Documents to shards: sentences, tokens, and the choice of validation documents."""

import hashlib
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sentencex import segment

from bert_core.text.tokenization import Tokenizer
from orchestrator.corpus.document_readers import Document
from orchestrator.corpus.token_store import STORED_NAMES, ShardInfo, StoreSplit, write_shard

MAX_SENTENCE_CHARACTERS = 8192
"""Longest sentence. A longer one is a table or noise, and is cut, so that the tokenizer's memory stays bounded."""

_WHITE_SPACE = re.compile(r"\s+")
_PIECE = re.compile(rf"(?s:.{{1,{MAX_SENTENCE_CHARACTERS}}})(?:\s|$)|(?s:.{{{MAX_SENTENCE_CHARACTERS}}})")


def split_sentences(text: str) -> list[str]:
    """Sentences of a document in order, without white space around them; none is empty.

    A line break ends a paragraph and its last sentence; inside it the library `sentencex` decides: measured on
    Wikipedia it splits 87 MB/s on one core (tokenizing runs at 3 to 4), knows English abbreviations, initials and
    quotations ("Dr. Smith", "J. R. Brown", "D.C. on Jan. 5"), gives the same answer every time and loses no character.
    One fault was found: a white space of more than one byte after an initial ("T" + no-break space) makes it panic. So
    white space becomes plain spaces first; over a million random strings of dirty text passed after that.
    """
    sentences: list[str] = []
    for paragraph in text.split("\n"):
        paragraph = _WHITE_SPACE.sub(" ", paragraph).strip()
        if not paragraph:
            continue
        for sentence in segment("en", paragraph):
            if len(sentence) > MAX_SENTENCE_CHARACTERS:
                sentences += [piece for match in _PIECE.finditer(sentence) if (piece := match.group().strip())]
            elif sentence := sentence.strip():
                sentences.append(sentence)
    return sentences


_SENTENCES_AT_ONCE = 1024
"""Sentences tokenized at a time: the tokenizer library takes hundreds of bytes per token while it works."""


def write_documents(
    documents: Sequence[Document], folder: str, stem: str, tokenizer: Tokenizer, validation_fraction: float
) -> list[ShardInfo]:
    """Tokenize documents and write those of each split as one shard, where there are any."""
    splits: dict[StoreSplit, list[Document]] = {"train": [], "validation": []}
    for document in documents:
        splits["validation" if is_validation(document.text, validation_fraction) else "train"].append(document)
    shards = []
    for split, chosen in splits.items():
        tokens, lengths = tokenize([document.text for document in chosen], tokenizer)
        kept = [number for number, document in enumerate(lengths) if document]
        if kept:
            ids = [chosen[number].id for number in kept]
            file = f"{stem}-{STORED_NAMES[split]}.parquet"
            shards.append(write_shard(folder, file, split, ids, tokens, [lengths[number] for number in kept]))
    return shards


def tokenize(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[NDArray[np.unsignedinteger], list[list[int]]]:
    """All tokens end to end, and the lengths of each document's sentences; a sentence without a token is dropped."""
    dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32
    documents = [split_sentences(text) for text in texts]
    sentences = [sentence for document in documents for sentence in document]
    parts: list[NDArray[np.unsignedinteger]] = [np.empty(0, dtype)]
    for start in range(0, len(sentences), _SENTENCES_AT_ONCE):
        parts += [np.array(ids, dtype) for ids in tokenizer.encode_ids(sentences[start : start + _SENTENCES_AT_ONCE])]
    lengths = iter([len(part) for part in parts[1:]])
    return np.concatenate(parts), [[n for _ in document if (n := next(lengths))] for document in documents]


def is_validation(text: str, share: float) -> bool:
    """Whether a document is kept out of training. A hash of its text decides, so that copies stay together."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64
