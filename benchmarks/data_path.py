"""Making pretraining examples here against transformers' DataCollatorForLanguageModeling.

    OMP_NUM_THREADS=1 python benchmarks/data_path.py --examples 256 --width 128 --rounds 15

The two sides take turns; what is compared is the median of the paired ratios of process CPU time. Masking: one padded
batch, `mask_tokens` against the collator's `torch_mask_tokens`. Pairs and masking: from tokenised documents to a
packed batch, against the collator on examples that are cut already, which it only pads and masks.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from bert_core.masking import MaskingConfig, mask_tokens
from bert_core.packing import PackedBatch, build_packed_batch
from bert_core.segment_pairs import (
    SegmentPairs,
    TokenizedDocuments,
    assemble,
    build_segment_pairs,
    count_examples,
)

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, _, CLS, SEP, MASK = range(len(SPECIALS))
VOCAB_SIZE = 30_522
NUM_SENTENCES = 40_000


def make_documents() -> TokenizedDocuments:
    """Random words: sentences of 5 to 39 tokens, documents of 3 to 39 sentences; a million tokens near enough."""
    numbers = np.random.default_rng(0)
    sentences = numbers.integers(5, 40, NUM_SENTENCES)
    documents = numbers.integers(3, 40, NUM_SENTENCES // 40)
    sentences = sentences[: documents.sum()]
    tokens = numbers.integers(len(SPECIALS), VOCAB_SIZE, sentences.sum()).astype(np.uint16)
    return TokenizedDocuments(tokens, np.append(0, sentences.cumsum()), np.append(0, documents.cumsum()))


class OurSide:
    """Examples by number from documents."""

    def __init__(self, documents: TokenizedDocuments, num_examples: int, width: int) -> None:
        self.documents, self.width = documents, width
        counts = count_examples(np.diff(documents.document_ends), width)
        self.document = np.repeat(np.arange(documents.num_documents), counts)
        self.ordinal = np.arange(len(self.document)) - np.repeat(counts.cumsum() - counts, counts)
        self.example = np.random.default_rng(1).permutation(len(self.document))[:num_examples]
        self.config = MaskingConfig(VOCAB_SIZE, MASK)

    def packed(self, epoch: int) -> PackedBatch:
        """Pairs, laid end to end, masked."""
        return build_packed_batch(
            self.documents,
            self._segments(epoch),
            self.config,
            cls_id=CLS,
            sep_id=SEP,
            seed=0,
            epoch=epoch,
            example=self.example,
        )

    def cut(self) -> list[dict[str, list[int]]]:
        """The same pairs unmasked, one by one, as a collator takes them."""
        tokens, types, bounds = assemble(self.documents, self._segments(0), cls_id=CLS, sep_id=SEP)
        return [
            {
                "input_ids": tokens[start:end].tolist(),
                "token_type_ids": types[start:end].tolist(),
                "special_tokens_mask": (tokens[start:end] < len(SPECIALS)).astype(int).tolist(),
            }
            for start, end in pairwise(bounds)
        ]

    def _segments(self, epoch: int) -> SegmentPairs:
        where = (self.document[self.example], self.ordinal[self.example])
        return build_segment_pairs(
            self.documents, *where, max_seq_length=self.width, seed=0, epoch=epoch, example=self.example
        )


def padded(examples: list[dict[str, list[int]]], width: int) -> NDArray[np.int64]:
    rows = np.full((len(examples), width), PAD)
    for row, example in zip(rows, examples, strict=True):
        row[: len(example["input_ids"])] = example["input_ids"]
    return rows


def cpu_ms(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return 1000 * (time.process_time() - started)


def compare(what: str, theirs: Callable[[], object], ours: Callable[[], object], rounds: int) -> None:
    for _ in range(2):
        theirs(), ours()
    pairs = [(cpu_ms(theirs), cpu_ms(ours)) for _ in range(rounds)]
    ratio = statistics.median(reference / own for reference, own in pairs)
    reference, own = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"{what}: collator {reference:.2f} ms, here {own:.2f} ms, ratio {ratio:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=256, help="of a batch")
    parser.add_argument("--width", type=int, default=128, help="tokens of a sequence at most")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    vocabulary = {token: number for number, token in enumerate(SPECIALS)}
    vocabulary |= {f"w{number}": number for number in range(len(SPECIALS), VOCAB_SIZE)}
    collator = transformers.DataCollatorForLanguageModeling(transformers.BertTokenizer(vocab=vocabulary))
    ours = OurSide(make_documents(), arguments.examples, arguments.width)
    examples = ours.cut()
    rows = padded(examples, arguments.width)
    special = rows < len(SPECIALS)
    fill = sum(len(example["input_ids"]) for example in examples) / rows.size
    print(f"{arguments.examples} examples of up to {arguments.width} tokens, {fill:.0%} of the slots filled")

    epochs = iter(range(10**9))
    mask_rows = partial(mask_tokens, vocab_size=VOCAB_SIZE, mask_token_id=MASK, seed=0, example=np.arange(len(rows)))
    inputs, mask = torch.from_numpy(rows), torch.from_numpy(special)
    compare(
        "masking",
        lambda: collator.torch_mask_tokens(inputs.clone(), mask),
        lambda: mask_rows(rows, special, epoch=next(epochs)),
        arguments.rounds,
    )
    compare(
        "pairs and masking",
        lambda: collator([dict(example) for example in examples]),
        lambda: ours.packed(next(epochs)),
        arguments.rounds,
    )


if __name__ == "__main__":
    main()
