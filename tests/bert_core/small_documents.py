"""Documents, and requests for examples, for the tests of what is cut from them."""

import numpy as np

from bert_core.examples.segments import ExampleRequest, SegmentLayout, Segments, TokenizedDocuments
from bert_core.objectives import SegmentConfig, build_segments, count_examples
from bert_core.ragged_rows import ragged_ranges

BERT = SegmentLayout(prefix=2, between=(3,), suffix=3, type_of_second=1)
ROBERTA = SegmentLayout(prefix=0, between=(2, 2), suffix=2, type_of_second=0)


def documents(num_documents: int = 40, seed: int = 0, longest: int = 30) -> TokenizedDocuments:
    """Tokens are their own places (from 10), so that a segment shows where it was cut."""
    generator = np.random.default_rng(seed)
    sentences = generator.integers(1, longest, num_documents)
    lengths = generator.integers(1, 25, sentences.sum())
    sentence_offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.arange(10, 10 + sentence_offsets[-1]).astype(np.uint32)
    return TokenizedDocuments(tokens, sentence_offsets, np.concatenate([[0], np.cumsum(sentences)]))


def all_examples(
    docs: TokenizedDocuments,
    length: int = 64,
    objective: str = "next_sentence",
    *,
    layout: SegmentLayout = BERT,
    cross_documents: bool = False,
    short: float = 0.1,
    seed: int = 1,
    epoch: int = 0,
    only: np.ndarray | None = None,
) -> tuple[np.ndarray, Segments]:
    """Each example's section and the segments of an epoch's examples, or of those numbers alone."""
    config = SegmentConfig(objective, cross_documents, short)
    counts = count_examples(np.diff(docs.document_ends), length, layout, config)
    sections = np.array([0, docs.num_documents]) if cross_documents else np.arange(docs.num_documents + 1)
    section = np.repeat(np.arange(len(counts)), counts)
    ordinal = np.concatenate([np.arange(count) for count in counts])
    example = np.arange(len(section)) if only is None else only
    request = ExampleRequest(docs, sections, section[example], ordinal[example], example, length, layout, seed, epoch)
    return section[example], build_segments(request, config)


def document_of(docs: TokenizedDocuments, places: np.ndarray) -> np.ndarray:
    """The document that each of some places of the tokens belongs to."""
    return np.searchsorted(docs.document_ends, places, side="right") - 1


def times_seen(docs: TokenizedDocuments, num_epochs: int, **options: object) -> np.ndarray:
    """How often each token stands in an epoch's examples, in the mean."""
    seen = np.zeros(len(docs.tokens))
    for epoch in range(num_epochs):
        _, segments = all_examples(docs, epoch=epoch, **options)  # type: ignore[arg-type]
        seen += np.bincount(ragged_ranges(segments.starts, segments.lengths), minlength=len(seen))
    return seen / num_epochs


def sides(pairs: Segments) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Starts and lengths of A, starts and lengths of B."""
    return pairs.starts[::2], pairs.lengths[::2], pairs.starts[1::2], pairs.lengths[1::2]
