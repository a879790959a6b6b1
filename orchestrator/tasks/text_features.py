"""Sentences and pairs of sentences as tokens, for classification and regression: `[CLS] a [SEP]` or
`[CLS] a [SEP] b [SEP]`, with as many separators between a and b as the tokenizer's own layout has.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from bert_core.masking import IGNORED
from bert_core.tokenization import Tokenizer
from orchestrator.tasks.examples import ClassificationExample, RegressionExample
from orchestrator.tasks.windows import Windows, cumulative, segment_types

_TEXTS_AT_A_TIME = 4096

TextExample = ClassificationExample | RegressionExample


def build_text_windows(
    examples: Sequence[TextExample], labels: Sequence[str], tokenizer: Tokenizer, max_seq_length: int
) -> Windows:
    """One window per example; longer ones are cut, the longer of a pair's texts first (Devlin et al. 2019, code)."""
    first = _encode(tokenizer, [example.text for example in examples])
    second = _encode(tokenizer, [example.text_pair or "" for example in examples])
    is_pair = np.array([example.text_pair is not None for example in examples])
    whole_a, whole_b = _lengths(first), _lengths(second)
    num_between = tokenizer.num_separators * is_pair
    kept_a, kept_b = truncate_longest_first(whole_a, whole_b, max_seq_length - 2 - num_between)
    cls, sep, between = [tokenizer.cls_id], [tokenizer.sep_id], [tokenizer.sep_id] * tokenizer.num_separators
    pieces: Iterator[list[int]] = chain.from_iterable(
        (cls, a[:num_a], between, b[:num_b], sep) if pair else (cls, a[:num_a], sep)
        for a, b, num_a, num_b, pair in zip(first, second, kept_a, kept_b, is_pair, strict=True)
    )
    segments = np.stack([kept_a + np.where(is_pair, 1 + num_between, 2), kept_b + is_pair], axis=1)  # (W, 2)
    cu_seqlens = cumulative(segments.sum(axis=1))
    return Windows(
        arrays={
            "input_ids": np.fromiter(chain.from_iterable(pieces), np.int32, count=int(cu_seqlens[-1])),
            "token_type_ids": segment_types(segments, tokenizer.type_of_second),
            "cu_seqlens": cu_seqlens,
            "example_index": np.arange(len(examples), dtype=np.int32),
            "labels": _label_array(examples, labels),
        },
        counts={"num_truncated": int(np.sum((kept_a < whole_a) | (kept_b < whole_b)))},
    )


def truncate_longest_first(
    a: NDArray[np.int64], b: NDArray[np.int64], budget: NDArray[np.int64] | int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths that are left when the longer text loses its last token, the second at equal lengths, until they fit."""
    budget = np.asarray(budget)
    room_b = np.maximum(budget // 2, budget - a)
    kept_b = np.minimum(b, room_b)
    return np.minimum(a, budget - kept_b), kept_b


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, tokenised in batches."""
    starts = range(0, len(texts), _TEXTS_AT_A_TIME)
    return [ids for start in starts for ids in tokenizer.encode_ids(texts[start : start + _TEXTS_AT_A_TIME])]


def _lengths(sequences: Sequence[list[int]]) -> NDArray[np.int64]:
    return np.fromiter(map(len, sequences), np.int64, count=len(sequences))


def _label_array(examples: Sequence[TextExample], labels: Sequence[str]) -> NDArray[np.generic]:
    if examples and isinstance(examples[0], RegressionExample):
        values = (e.value if isinstance(e, RegressionExample) else None for e in examples)
        return np.array([math.nan if value is None else value for value in values], dtype=np.float32)
    number: dict[str | None, int] = {label: i for i, label in enumerate(labels)} | {None: IGNORED}
    names = (e.label if isinstance(e, ClassificationExample) else None for e in examples)
    return np.array([number[name] for name in names], dtype=np.int32)
