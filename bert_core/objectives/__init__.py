"""The pretraining objectives, one file for each, and batches made by them; without torch.

An objective cuts the segments, they are laid end to end, an objective hides tokens. Their heads are in
`bert_core.heads.pretraining`.

Shapes: n examples.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bert_core.config import BertConfig
from bert_core.examples.packing import PackedBatch
from bert_core.examples.segments import (
    ExampleRequest,
    SegmentLayout,
    Segments,
    TokenizedDocuments,
    count_chunks,
    document_sentences,
    full_sentences,
    lay_out,
)
from bert_core.masking import MaskingConfig
from bert_core.objectives.base import Objective, SentenceObjective, TokenObjective
from bert_core.objectives.masked_lm import LeftToRight, MaskedLM, SpanBoundary
from bert_core.objectives.next_sentence import NextSentence, SentenceOrder
from bert_core.objectives.replaced_tokens import Generator, ReplacedTokens
from bert_core.ragged_rows import Int64Array

OBJECTIVES: Mapping[str, Objective] = {
    objective.name: objective
    for objective in (
        MaskedLM(),
        NextSentence(),
        SentenceOrder(),
        SpanBoundary(),
        LeftToRight(),
        Generator(),
        ReplacedTokens(),
    )
}
"""All objectives by name. Weights are drawn and losses added up in this order: a new one goes to the end."""

TOKEN_OBJECTIVES: Mapping[str, TokenObjective] = {
    name: objective for name, objective in OBJECTIVES.items() if isinstance(objective, TokenObjective)
}
"""The objectives of which a run has exactly one."""

SENTENCE_OBJECTIVES: Mapping[str, SentenceObjective] = {
    name: objective for name, objective in OBJECTIVES.items() if isinstance(objective, SentenceObjective)
}
"""The objectives of which a run has at most one."""

NO_SENTENCE_OBJECTIVE = "none"
"""Name in specs for single sequences, about which nothing is asked."""


def active_objectives(chosen: Collection[str], config: BertConfig) -> tuple[str, ...]:
    """Names of the objectives of a run, given those that its spec chose and its model's configuration."""
    return tuple(name for name, objective in OBJECTIVES.items() if objective.is_active(chosen, config))


@dataclass(frozen=True)
class SegmentConfig:
    """Rules by which examples are cut from documents."""

    sentence_objective: str = "next_sentence"
    """A name of SENTENCE_OBJECTIVES, or "none"."""
    cross_documents: bool = False
    """Whether a single sequence goes on into the next document."""
    short_seq_prob: float = 0.1
    """Share of examples that are filled up to a random, shorter length."""


def build_segments(request: ExampleRequest, config: SegmentConfig) -> Segments:
    """Segments of the requested examples. Raises: DataError when there are too few documents for the objective."""
    if config.sentence_objective != NO_SENTENCE_OBJECTIVE:
        return SENTENCE_OBJECTIVES[config.sentence_objective].cut_pairs(request, config.short_seq_prob)
    return (full_sentences if config.cross_documents else document_sentences)(request, config.short_seq_prob)


def count_examples(
    document_lengths: Int64Array, max_seq_length: int, layout: SegmentLayout, config: SegmentConfig
) -> Int64Array:
    """Examples (num_sections,) that an epoch takes from each section of documents of so many tokens.

    Each document is a section; where sequences cross their borders, all of them are one section.
    """
    capacity = max_seq_length - layout.num_pair_specials
    if config.cross_documents:
        return count_chunks((document_lengths + 1).sum(keepdims=True), capacity)
    counts = count_chunks(document_lengths, capacity)
    if config.sentence_objective == NO_SENTENCE_OBJECTIVE:
        return counts
    return counts * (document_lengths >= SENTENCE_OBJECTIVES[config.sentence_objective].min_document_tokens)


def build_packed_batch(
    documents: TokenizedDocuments,
    segments: Segments,
    masking: MaskingConfig,
    *,
    layout: SegmentLayout,
    seed: int,
    epoch: int,
    example: NDArray[np.int64],
    token_objective: str = "masked_lm",
) -> PackedBatch:
    """The examples of these segments laid end to end, with what their token objective hides.

    An example's part of the batch is a function of the seed, the epoch and its own number in `example` (n,).
    """
    laid = lay_out(documents, segments, layout)
    hidden = TOKEN_OBJECTIVES[token_objective].hide_tokens(laid, masking, seed=seed, epoch=epoch, example=example)
    return PackedBatch(
        hidden.input_ids,
        laid.token_type_ids,
        laid.cu_seqlens,
        hidden.positions,
        hidden.labels,
        segments.sentence_labels,
        hidden.draws,
    )
