"""Documents to shards: sentences, tokens, and the choice of validation documents."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bert_core.text.tokenization import Tokenizer
from orchestrator.corpus.document_readers import Document
from orchestrator.corpus.manifest import STORED_NAMES, ShardInfo, StoreSplit
from orchestrator.corpus.sentence_splitting import split_sentences
from orchestrator.corpus.token_store import write_shard

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
