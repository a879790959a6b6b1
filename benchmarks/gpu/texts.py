"""Text to learn from in the GPU benchmark: generated with structure, it becomes masked batches.

Generated text has topics and is a Markov chain. A document draws one of K topics, each with words of its own, and each
word has four words of its topic that may follow it, with probabilities 0.6, 0.2, 0.15 and 0.05. So there is something
to learn at once, which words belong together, that takes the loss from the logarithm of W down to that of W / K, and
something that takes longer: which word follows which.

Shapes: n documents, K topics, W words, S words of a document.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice

import numpy as np

from bert_core.counter_random import permutation
from bert_core.examples.chunks import ExampleRequest
from bert_core.examples.packing import PackedBatch
from bert_core.examples.segments import TokenizedDocuments
from bert_core.masking import MaskingConfig
from bert_core.objectives.packed_batches import SegmentConfig, build_packed_batch, build_segments, count_examples
from bert_core.text.segment_layout import SegmentLayout

_NUM_SPECIALS = 5
"""Padding, unknown, [CLS], [SEP], [MASK], in this order: as `train_wordpiece` numbers them."""
_FOLLOWERS = (0.6, 0.2, 0.15, 0.05)


@dataclass(frozen=True)
class LearnableText:
    """Documents, and how their tokens are numbered."""

    name: str
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


def generated_text(num_documents: int, num_words: int, num_topics: int = 8, seed: int = 0) -> LearnableText:
    """Generate documents of 200 words in sentences of 10, as the module's first lines say."""
    generator, document_length, sentence_length = np.random.default_rng(seed), 200, 10
    words_each = num_words // num_topics
    followers = generator.integers(words_each, size=(num_topics, words_each, len(_FOLLOWERS)))  # (K, W / K, 4)
    topics = generator.integers(num_topics, size=num_documents)
    words = np.empty((num_documents, document_length), dtype=np.uint32)  # (n, S), numbered in their topics
    words[:, 0] = generator.integers(words_each, size=num_documents)
    for place in range(1, document_length):
        drawn = generator.choice(len(_FOLLOWERS), size=num_documents, p=_FOLLOWERS)
        words[:, place] = followers[topics, words[:, place - 1], drawn]
    words += (topics[:, None] * words_each + _NUM_SPECIALS).astype(np.uint32)
    sentences_each = document_length // sentence_length
    documents = TokenizedDocuments(
        words.reshape(-1),
        np.arange(0, words.size + 1, sentence_length),
        np.arange(0, num_documents * sentences_each + 1, sentences_each),
    )
    layout = SegmentLayout(prefix=2, between=(3,), suffix=3, type_of_second=1)
    return LearnableText("generated", documents, num_words + _NUM_SPECIALS, layout, mask_token_id=4)


def first_batches(text: LearnableText, num_batches: int, batch_size: int, width: int, seed: int) -> list[PackedBatch]:
    """Make the first batches of a text."""
    return list(islice(text.batches(batch_size, width, seed), num_batches))
