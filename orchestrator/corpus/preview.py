"""Preview of what a model will read: documents sentence by sentence, training examples token by token.

Examples are made by the stream that a run trains on, so they are the run's own wherever the store is. No torch.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bert_core.examples.packing import PackedBatch
from bert_core.objectives import SENTENCE_OBJECTIVES
from bert_core.text.segment_layout import SegmentLayout
from bert_core.text.tokenization import Tokenizer
from orchestrator.corpus.document_readers import Document
from orchestrator.corpus.sentence_splitting import split_sentences
from orchestrator.corpus.stream import ExampleStream, StreamConfig

Change = Literal["masked", "replaced", "kept"]


@dataclass(frozen=True)
class SentencePreview:
    """One sentence of a document."""

    document: str
    """Name of the document."""
    text: str
    pieces: tuple[str, ...] | None
    """Word pieces of the sentence; None without a tokenizer. A sentence without pieces is left out of training."""


@dataclass(frozen=True)
class TokenPreview:
    """One token of an example."""

    token: str
    """The token as the model reads it."""
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
    """The optimizer step that uses the example; None for an example after the end of its phase."""
    sentence_label: int | None
    """Label of a pair of segments; None for a single sequence."""
    sentence_answer: str | None
    """Meaning of the label for A and B; None without a sentence objective."""
    tokens: tuple[TokenPreview, ...]


def preview_sentences(documents: Iterable[Document], tokenizer: Tokenizer | None = None) -> Iterator[SentencePreview]:
    """Sentences of documents, as the splitter cuts them and as the tokenizer cuts those into word pieces."""
    for document in documents:
        sentences = split_sentences(document.text)
        encoded = tokenizer.encode_ids(sentences) if tokenizer else [None] * len(sentences)
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
    previews = []
    for number, batch in zip(numbers.tolist(), stream.examples(phase, numbers).split(1), strict=True):
        label = int(batch.sentence_labels[0]) if len(batch.sentence_labels) else None
        previews.append(
            ExamplePreview(
                phase,
                *divmod(number, per_epoch),
                step=_step_of(stream.config, phase, number),
                sentence_label=label,
                sentence_answer=answers.answers[label] if answers and label is not None else None,
                tokens=tuple(_preview_tokens(batch, tokenizer, stream.config)),
            )
        )
    return previews


def _step_of(config: StreamConfig, phase: int, number: int) -> int | None:
    """The step that uses an example of a phase, which is given by its number over all epochs."""
    firsts = [0, *accumulate(steps for _, steps in config.phases)]
    step = firsts[phase] + number // config.global_batch_size
    return step if step < firsts[phase + 1] else None


def _preview_tokens(batch: PackedBatch, tokenizer: Tokenizer, config: StreamConfig) -> Iterator[TokenPreview]:
    """Tokens of a batch of one example."""
    truth = batch.input_ids.copy()
    truth[batch.masked_positions] = batch.masked_labels
    is_special, segments = _find_segments(truth, config.layout, is_pair=len(batch.sentence_labels) > 0)
    hidden = dict(zip(batch.masked_positions.tolist(), batch.masked_labels.tolist(), strict=True))
    for position, read in enumerate(batch.input_ids.tolist()):
        label = hidden.get(position)
        change: Change | None = None
        if label is not None:
            change = "masked" if read == config.masking.mask_token_id else "kept" if read == label else "replaced"
        yield TokenPreview(
            token=tokenizer.token(read),
            segment=int(segments[position]),
            is_special=bool(is_special[position]),
            change=change,
            truth=None if label is None else tokenizer.token(label),
        )


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
