"""A token store to look at: the corpus's own where it is built already, else a small one of the first text. No Ray."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from typing import Literal

from bert_core.text.tokenization import Tokenizer
from orchestrator.corpus.document_batches import plan_bundles, read_batches
from orchestrator.corpus.input_files import InputFile, find_files
from orchestrator.corpus.shard_tokenization import write_documents
from orchestrator.corpus.token_store import MANIFEST, Manifest, ShardInfo, TokenStore, store_folder, store_options
from orchestrator.specs import TextSource
from orchestrator.storage import exists, join

_MOST = 0.99
"""Share of the text at most, where there is more of it."""
SAMPLE_BYTES = 4 << 20
"""Text of a small store at most, about: a second or two of tokenizing."""

Origin = Literal["token_store", "whole_text", "first_text"]


@dataclass(frozen=True)
class SampleStore:
    """A store, and where its documents come from."""

    store: TokenStore
    origin: Origin
    """The corpus's own store; or a small one of the whole text, which has the same shards and so the same examples; or
    one of the first text, where the examples are others."""
    share: float = 1.0
    """Share of the corpus's text that it has: an estimate for a store of the first text, 1 for others."""


@contextmanager
def open_sample_store(
    source: TextSource,
    tokenizer: Tokenizer,
    validation_fraction: float,
    shard_bytes: int,
    storage: str,
    sample_bytes: int = SAMPLE_BYTES,
) -> Iterator[SampleStore]:
    """Open the corpus's store on the storage; without one, build a small store that is gone when the block ends.

    Raises: CorpusError for text that is missing or broken, or for a store that is damaged.
    """
    files = find_files(source)
    options = store_options(source, tokenizer, validation_fraction, shard_bytes)
    folder = store_folder(storage, options, files)
    if exists(join(folder, MANIFEST)):
        yield SampleStore(TokenStore.open(folder), "token_store")
        return
    with TemporaryDirectory(prefix="orchestrator-corpus-") as temporary:
        write = partial(write_documents, folder=temporary, tokenizer=tokenizer, validation_fraction=validation_fraction)
        shards, share = _write_first(files, source, shard_bytes, sample_bytes, write)
        manifest = Manifest(tokenizer.fingerprint, tokenizer.vocab_size, options, shards)
        store = TokenStore(temporary, manifest)
        yield SampleStore(store, "first_text", share) if share < 1 else SampleStore(store, "whole_text")


def _write_first(
    files: Sequence[InputFile],
    source: TextSource,
    shard_bytes: int,
    sample_bytes: int,
    write: Callable[..., list[ShardInfo]],
) -> tuple[tuple[ShardInfo, ...], float]:
    """Shards of the first text, cut as `build_token_store` cuts them, and which share of the text that was."""
    shards: list[ShardInfo] = []
    room, batch_bytes = sample_bytes, min(shard_bytes, sample_bytes)
    num_documents = 0
    for number, bundle in enumerate(plan_bundles(files, source)):
        for sequence, batch in enumerate(read_batches(bundle, source, batch_bytes)):
            if room <= 0 and batch.documents:
                share = (sample_bytes - room) / max(1.0, sum(file.estimated_text_bytes for file in files))
                return tuple(shards), min(_MOST, max(share, num_documents / (source.max_documents or math.inf)))
            num_documents += len(batch.documents)
            stem = f"{number:06d}-{sequence:06d}"
            shards += write(batch.documents, stem=stem)
            room -= sum(len(document.text.encode()) for document in batch.documents)
    return tuple(shards), 1.0
