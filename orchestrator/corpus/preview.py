"""Preview of what a model will read: documents sentence by sentence, examples token by token, a store of a sample.

Examples are made by the stream that a run trains on, so they are the run's own wherever the store is. No torch.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bert_core.examples.packing import PackedBatch
from bert_core.examples.segments import SegmentLayout
from bert_core.objectives import SENTENCE_OBJECTIVES
from bert_core.text.tokenization import Tokenizer
from orchestrator.corpus.document_batches import of_entry, plan_bundles, read_batches, split_sentences, write_documents
from orchestrator.corpus.document_readers import Document
from orchestrator.corpus.input_files import InputFile, find_files
from orchestrator.corpus.stream import ExampleStream, StreamConfig
from orchestrator.corpus.token_store import MANIFEST, Manifest, ShardInfo, TokenStore, store_folder, store_options
from orchestrator.specs import TextSource
from orchestrator.storage import exists, join

Change = Literal["masked", "replaced", "kept"]
_MOST_SHARE = 0.99
"""Share of the text at most, where there is more of it."""
Origin = Literal["token_store", "whole_text", "first_text"]
SAMPLE_BYTES = 4 << 20
"""Text of a small store at most, about: a second or two of tokenizing."""


@dataclass(frozen=True)
class SentencePreview:
    """One sentence of a document."""

    document: str
    text: str
    pieces: tuple[str, ...] | None
    """Word pieces of the sentence; None without a tokenizer. A sentence without pieces is left out of training."""


@dataclass(frozen=True)
class TokenPreview:
    """One token of an example."""

    token: str
    segment: int
    """Number of the token's segment in its example, from 0: of a pair, 0 is A and 1 is B."""
    is_special: bool
    """Whether the token belongs to the layout of the sequence, and not to its text."""
    change: Change | None
    """Change made to a token whose position is predicted; None where nothing is hidden."""
    truth: str | None
    """The token of the text, which the model is to predict here; None where nothing is hidden."""


@dataclass(frozen=True)
class ExamplePreview:
    """One training example, as the model reads it: there is no padding."""

    phase: int
    epoch: int
    example: int
    """Number of the example in its epoch, from 0."""
    step: int | None
    """The optimizer step that uses the example; None after the end of its phase, or where steps are auto."""
    sentence_label: int | None
    sentence_answer: str | None
    """Meaning of the label for A and B; None without a sentence objective."""
    tokens: tuple[TokenPreview, ...]


def preview_sentences(documents: Iterable[Document], tokenizer: Tokenizer | None = None) -> Iterator[SentencePreview]:
    """Sentences of documents, as the splitter cuts them and as the tokenizer cuts those into word pieces."""
    for document in documents:
        sentences = split_sentences(document.text, document.language)
        encoded = tokenizer.encode_sentences(sentences) if tokenizer else [None] * len(sentences)
        for text, ids in zip(sentences, encoded, strict=True):
            pieces = tuple(map(tokenizer.token, ids)) if tokenizer and ids is not None else None
            yield SentencePreview(document.id, text, pieces)


def preview_examples(
    stream: ExampleStream, tokenizer: Tokenizer, phase: int, epoch: int, first: int, num_examples: int
) -> list[ExamplePreview]:
    """Consecutive examples of a phase, from number `first` of an epoch on; they run on into the next epoch.

    Raises: IndexError for a phase that the run does not have.
    """
    per_epoch = stream.examples_per_epoch(phase)
    numbers = np.arange(num_examples) + epoch * per_epoch + first
    answers = SENTENCE_OBJECTIVES.get(stream.config.segments.sentence_objective)
    firsts = [0, *accumulate(steps for _, steps, _ in stream.config.phases)]
    previews = []
    for number, batch in zip(numbers.tolist(), stream.examples(phase, numbers).split(1), strict=True):
        label = int(batch.sentence_labels[0]) if len(batch.sentence_labels) else None
        answer = answers.answers[label] if answers and label is not None else None
        step = firsts[phase] + number // stream.config.phases[phase][2]
        tokens = tuple(_preview_tokens(batch, tokenizer, stream.config))
        at = step if step < firsts[phase + 1] else None
        previews.append(ExamplePreview(phase, *divmod(number, per_epoch), at, label, answer, tokens))
    return previews


def _preview_tokens(batch: PackedBatch, tokenizer: Tokenizer, config: StreamConfig) -> Iterator[TokenPreview]:
    truth = batch.input_ids.copy()
    truth[batch.masked_positions] = batch.masked_labels
    is_special, segments = _find_segments(truth, config.layout, is_pair=len(batch.sentence_labels) > 0)
    hidden = dict(zip(batch.masked_positions.tolist(), batch.masked_labels.tolist(), strict=True))
    for position, read in enumerate(batch.input_ids.tolist()):
        change: Change | None = None
        hidden_token = None
        if (label := hidden.get(position)) is not None:
            change = "masked" if read == tokenizer.mask_id else "kept" if read == label else "replaced"
            hidden_token = tokenizer.token(label)
        place = int(segments[position]), bool(is_special[position])
        yield TokenPreview(tokenizer.token(read), *place, change, hidden_token)


def _find_segments(
    truth: NDArray[np.int32], layout: SegmentLayout, *, is_pair: bool
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Mark the special tokens of an example (T,) and give the segment of each token (T,); a separator ends its segment.

    No text gives a special token, so the separators in `truth` are those of the layout.
    """
    is_separator = np.isin(truth, [*layout.between, layout.suffix])
    if is_pair:
        begin_of_second = int(np.argmax(is_separator)) + len(layout.between)
        segments = (np.arange(len(truth)) >= begin_of_second).astype(np.int64)
    else:
        segments = np.cumsum(is_separator) - is_separator
    return is_separator | (truth == layout.prefix), segments


class SampleStore(NamedTuple):
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
    """Shards of the first text, cut as `build_token_store` cuts them, and which share of the text that was.

    Of entries that have weights it is the first text of each.
    """
    shards: list[ShardInfo] = []
    entries = {file.entry if source.weights else 0 for file in files}
    room, full = dict.fromkeys(entries, sample_bytes // max(1, len(entries))), set[int]()
    num_documents = 0
    for number, bundle in enumerate(plan_bundles(files, source)):
        entry = bundle[0].entry if source.weights else 0
        batches = () if entry in full else read_batches(bundle, source, min(shard_bytes, sample_bytes))
        for sequence, (documents, _) in enumerate(batches):
            if room[entry] <= 0 and documents:
                full.add(entry)
                break
            num_documents += len(documents)
            stem = f"{number:06d}-{sequence:06d}"
            shards += of_entry(write(documents, stem=stem), bundle, source)
            room[entry] -= sum(len(document.text.encode()) for document in documents)
    if not full:
        return tuple(shards), 1.0
    share = (sample_bytes - sum(room.values())) / max(1.0, sum(file.estimated_text_bytes for file in files))
    return tuple(shards), min(_MOST_SHARE, max(share, num_documents / (source.max_documents or math.inf)))
