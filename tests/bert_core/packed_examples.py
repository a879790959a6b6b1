"""Packed batches of small documents, for tests."""

import numpy as np

from bert_core.examples.packing import PackedBatch
from bert_core.masking import MaskingConfig
from bert_core.objectives import build_packed_batch
from tests.bert_core.small_documents import BERT, all_examples, documents

CLS, SEP = BERT.prefix, BERT.suffix
MASKING = MaskingConfig(vocab_size=50_000, mask_token_id=4)


def packed_examples(masking: MaskingConfig = MASKING, **changes: object) -> PackedBatch:
    """All examples of an epoch as one batch."""
    docs = documents()
    document, pairs = all_examples(docs, **changes)
    return build_packed_batch(
        docs,
        pairs,
        masking,
        layout=BERT,
        seed=1,
        epoch=0,
        example=np.arange(len(document)),
    )


def restored(packed: PackedBatch) -> np.ndarray:
    """The tokens of a batch as they were before any was hidden."""
    ids = packed.input_ids.copy()
    ids[packed.masked_positions] = packed.masked_labels
    return ids
