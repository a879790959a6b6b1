"""Random text for the GPU benchmark, which becomes masked batches of real lengths."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice

import numpy as np

from bert_core.counter_random import permutation
from bert_core.examples.packing import PackedBatch
from bert_core.examples.segments import ExampleRequest, SegmentLayout, TokenizedDocuments
from bert_core.masking import MaskingConfig
from bert_core.objectives import SegmentConfig, build_packed_batch, build_segments, count_examples

_NUM_SPECIALS = 5
"""Padding, unknown, [CLS], [SEP], [MASK], in this order: as `train_wordpiece` numbers them."""


@dataclass(frozen=True)
class RandomText:
    """Documents, and how their tokens are numbered."""

    documents: TokenizedDocuments
    vocab_size: int
    layout: SegmentLayout
    mask_token_id: int

    def batches(self, batch_size: int, width: int, seed: int) -> Iterator[PackedBatch]:
        """Make masked pairs of segments without end, in a new order in each epoch."""
        lengths = np.diff(self.documents.document_ends)
        config, masking = SegmentConfig(), MaskingConfig(self.vocab_size, self.mask_token_id)
        counts = count_examples(lengths, width, self.layout, config)
        sections = np.repeat(np.arange(len(counts)), counts)
        ordinals = np.arange(len(sections)) - np.repeat(np.cumsum(counts) - counts, counts)
        offsets = np.arange(self.documents.num_documents + 1)
        for epoch in count():
            order = permutation(seed + epoch, len(sections))
            for start in range(0, len(order) - batch_size + 1, batch_size):
                chosen = order[start : start + batch_size]
                request = ExampleRequest(
                    self.documents,
                    offsets,
                    sections[chosen],
                    ordinals[chosen],
                    chosen,
                    width,
                    self.layout,
                    seed,
                    epoch,
                )
                yield build_packed_batch(
                    self.documents,
                    build_segments(request, config),
                    masking,
                    layout=self.layout,
                    seed=seed,
                    epoch=epoch,
                    example=chosen,
                )


def generated_text(num_documents: int, num_words: int, seed: int = 0) -> RandomText:
    """Draw documents of 200 words in sentences of 10, each word as likely as any other."""
    document_length, sentence_length = 200, 10
    words = np.random.default_rng(seed).integers(num_words, size=num_documents * document_length) + _NUM_SPECIALS
    documents = TokenizedDocuments(
        words.astype(np.uint32),
        np.arange(0, len(words) + 1, sentence_length),
        np.arange(0, len(words) // sentence_length + 1, document_length // sentence_length),
    )
    layout = SegmentLayout(prefix=2, between=(3,), suffix=3, type_of_second=1)
    return RandomText(documents, num_words + _NUM_SPECIALS, layout, mask_token_id=4)


def first_batches(text: RandomText, num_batches: int, batch_size: int, width: int, seed: int) -> list[PackedBatch]:
    return list(islice(text.batches(batch_size, width, seed), num_batches))
