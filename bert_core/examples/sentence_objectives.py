"""The choice of what examples are made of: pairs with a question about their order, or single sequences without one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bert_core.config_choices import SentenceObjective
from bert_core.examples.full_sentences import document_sentences, full_sentences
from bert_core.examples.segment_pairs import next_sentence_pairs, sentence_order_pairs
from bert_core.examples.segments import Segments
from bert_core.examples.stretches import Numbered, count_stretches
from bert_core.ragged_rows import Int64Array
from bert_core.text.segment_layout import SegmentLayout


@dataclass(frozen=True)
class SegmentConfig:
    """How examples are cut from documents."""

    sentence_objective: SentenceObjective = "next_sentence"
    cross_documents: bool = False
    """Whether a sequence is filled up from the next document; where there is no sentence objective."""
    short_seq_prob: float = 0.1


_PAIRS: Mapping[SentenceObjective, Callable[[Numbered, float], Segments]] = {
    "next_sentence": next_sentence_pairs,
    "sentence_order": sentence_order_pairs,
}


def build_segments(numbered: Numbered, config: SegmentConfig) -> Segments:
    """The segments of numbered examples. Raises: DataError when there are too few documents for the objective."""
    singles = full_sentences if config.cross_documents else document_sentences
    return _PAIRS.get(config.sentence_objective, singles)(numbered, config.short_seq_prob)


def count_examples(
    document_lengths: Int64Array, max_seq_length: int, layout: SegmentLayout, config: SegmentConfig
) -> Int64Array:
    """Examples an epoch takes from each section of documents of so many tokens that lie together: (num_sections,).

    Each document is a section, or all of them are one where sequences cross their borders. A document of one token
    has no order, so it gives no example to that objective.
    """
    capacity = max_seq_length - layout.num_pair_specials
    if config.cross_documents:
        return count_stretches((document_lengths + 1).sum(keepdims=True), capacity)
    counts = count_stretches(document_lengths, capacity)
    return counts * (document_lengths > 1) if config.sentence_objective == "sentence_order" else counts
