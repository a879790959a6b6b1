"""Making pretraining examples here against transformers' DataCollatorForLanguageModeling.

    OMP_NUM_THREADS=1 python benchmarks/data_path.py --examples 256 --width 128 --rounds 15

The two sides take turns; what is compared is the median of the paired ratios of process CPU time. Masking: one padded
batch, `mask_tokens` against the collator's `torch_mask_tokens`. Pairs and masking: from tokenized documents to a
packed batch, against the collator on examples that are cut already, which it only pads and masks. Then the same from
documents in units of words and spans, and with other sentence objectives, against tokens and next sentences here.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from bert_core.examples.packing import PackedBatch
from bert_core.examples.segments import ExampleRequest, SegmentLayout, Segments, TokenizedDocuments, lay_out
from bert_core.masking import MaskingConfig, MaskUnit, mask_tokens
from bert_core.objectives import SegmentConfig, build_packed_batch, build_segments, count_examples
from bert_core.text.word_boundaries import MARKS, WordBoundaries

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, _, CLS, SEP, MASK = range(len(SPECIALS))
LAYOUT = SegmentLayout(CLS, (SEP,), SEP, type_of_second=1)
VOCAB_SIZE = 30_522
WORD_BOUNDARIES = WordBoundaries(MARKS[0], np.arange(VOCAB_SIZE) % 5 == 0)
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
    """Examples by number from documents; every fifth token of the vocabulary goes on with a word."""

    def __init__(
        self, documents: TokenizedDocuments, num_examples: int, width: int, segments: SegmentConfig, unit: MaskUnit
    ) -> None:
        self.documents, self.width, self.segments = documents, width, segments
        counts = count_examples(np.diff(documents.document_ends), width, LAYOUT, segments)
        all_documents = np.arange(documents.num_documents + 1)
        self.sections = all_documents[[0, -1]] if segments.cross_documents else all_documents
        self.section = np.repeat(np.arange(len(counts)), counts)
        self.ordinal = np.arange(len(self.section)) - np.repeat(counts.cumsum() - counts, counts)
        self.example = np.random.default_rng(1).permutation(len(self.section))[:num_examples]
        self.masking = MaskingConfig(VOCAB_SIZE, MASK, unit=unit, word_boundaries=WORD_BOUNDARIES)

    def packed_next(self, epochs: Iterator[int]) -> PackedBatch:
        """The examples of one more epoch, laid end to end, masked."""
        epoch = next(epochs)
        return build_packed_batch(
            self.documents,
            self._segments(epoch),
            self.masking,
            layout=LAYOUT,
            seed=0,
            epoch=epoch,
            example=self.example,
        )

    def cut(self) -> list[dict[str, list[int]]]:
        """The same pairs unmasked, one by one, as a collator takes them."""
        laid = lay_out(self.documents, self._segments(0), LAYOUT)
        return [
            {
                "input_ids": laid.input_ids[start:end].tolist(),
                "token_type_ids": laid.token_type_ids[start:end].tolist(),
                "special_tokens_mask": laid.is_special[start:end].astype(int).tolist(),
            }
            for start, end in pairwise(laid.cu_seqlens)
        ]

    def _segments(self, epoch: int) -> Segments:
        where = (self.sections, self.section[self.example], self.ordinal[self.example])
        request = ExampleRequest(self.documents, *where, self.example, self.width, LAYOUT, seed=0, epoch=epoch)
        return build_segments(request, self.segments)


def padded(examples: list[dict[str, list[int]]], width: int) -> NDArray[np.int64]:
    rows = np.full((len(examples), width), PAD)
    for row, example in zip(rows, examples, strict=True):
        row[: len(example["input_ids"])] = example["input_ids"]
    return rows


def cpu_ms(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return 1000 * (time.process_time() - started)


def compare(
    what: str, theirs: Callable[[], object], ours: Callable[[], object], rounds: int, reference_name: str = "collator"
) -> None:
    for _ in range(2):
        theirs(), ours()
    pairs = [(cpu_ms(theirs), cpu_ms(ours)) for _ in range(rounds)]
    ratio = statistics.median(reference / own for reference, own in pairs)
    reference, own = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"{what}: {reference_name} {reference:.2f} ms, here {own:.2f} ms, ratio {ratio:.2f}")


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
    build = partial(OurSide, make_documents(), arguments.examples, arguments.width)
    ours = build(SegmentConfig(), "token")
    examples = ours.cut()
    rows = padded(examples, arguments.width)
    special = rows < len(SPECIALS)
    fill = sum(len(example["input_ids"]) for example in examples) / rows.size
    print(f"{arguments.examples} examples of up to {arguments.width} tokens, {fill:.0%} of the padded positions filled")

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
        partial(ours.packed_next, epochs),
        arguments.rounds,
    )
    others = {"words": build(SegmentConfig(), "word"), "spans": build(SegmentConfig(), "span")}
    others["sentence order"] = build(SegmentConfig("sentence_order"), "token")
    others["full sentences"] = build(SegmentConfig("none", cross_documents=True), "token")
    for name, other in others.items():
        compare(
            name,
            partial(ours.packed_next, epochs),
            partial(other.packed_next, epochs),
            arguments.rounds,
            "tokens and next sentences",
        )


if __name__ == "__main__":
    main()
