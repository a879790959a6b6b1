"""Sentences and pairs of sentences as tokens, for the classifiers of sequences: `[CLS] a [SEP]` or
`[CLS] a [SEP] b [SEP]`, with as many separators between a and b as the tokenizer's own layout has.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from bert_core.constants import IGNORE_INDEX
from bert_core.text.segment_layout import NUM_SINGLE_SPECIALS
from bert_core.text.tokenization import Tokenizer
from orchestrator.tasks.examples import (
    ClassificationExample,
    MatchExample,
    MultiLabelExample,
    MultipleChoiceExample,
    RegressionExample,
    TextExample,
)
from orchestrator.tasks.tabular_columns import TabularColumns
from orchestrator.tasks.token_windows import Array, Windows, cumulative, segment_types

_TEXTS_AT_A_TIME = 4096


def build_text_windows(
    examples: Sequence[TextExample],
    labels: Sequence[str],
    columns: TabularColumns,
    tokenizer: Tokenizer,
    max_seq_length: int,
) -> Windows:
    """One window per example, and what its columns say beside it."""
    pairs = [(example.text, example.text_pair) for example in examples]
    arrays, is_cut = _build_windows(pairs, tokenizer, max_seq_length)
    arrays["example_index"] = np.arange(len(examples), dtype=np.int32)
    arrays["labels"] = _label_array(examples, labels)
    if columns.width:
        arrays["extra"] = columns.encode(examples)
    return Windows(arrays, {"num_truncated": int(is_cut.sum())})


def build_choice_windows(
    examples: Sequence[MultipleChoiceExample], tokenizer: Tokenizer, max_seq_length: int
) -> Windows:
    """One window per choice, as the second text of a pair; those of an example follow one another."""
    pairs = [(example.text, choice) for example in examples for choice in example.choices]
    arrays, is_cut = _build_windows(pairs, tokenizer, max_seq_length)
    example_index = np.repeat(np.arange(len(examples), dtype=np.int32), [len(e.choices) for e in examples])
    arrays["example_index"] = example_index
    arrays["labels"] = np.array([IGNORE_INDEX if e.label is None else e.label for e in examples], dtype=np.int32)
    return Windows(arrays, {"num_truncated": len(np.unique(example_index[is_cut]))})


def build_dual_windows(
    examples: Sequence[TextExample], labels: Sequence[str], tokenizer: Tokenizer, max_seq_length: int
) -> Windows:
    """Two windows per example, one for each of its texts; what belongs together is labeled by its texts' numbers."""
    texts = [(text, None) for example in examples for text in (example.text, example.text_pair or "")]
    arrays, is_cut = _build_windows(texts, tokenizer, max_seq_length)
    arrays["example_index"] = np.repeat(np.arange(len(examples), dtype=np.int32), 2)
    is_match = isinstance(examples[0], MatchExample)
    arrays["labels"] = _number_texts(arrays).reshape(-1, 2) if is_match else _label_array(examples, labels)
    return Windows(arrays, {"num_truncated": int(is_cut.reshape(-1, 2).any(axis=1).sum())})


def _build_windows(
    pairs: Sequence[tuple[str, str | None]], tokenizer: Tokenizer, max_seq_length: int
) -> tuple[dict[str, Array], NDArray[np.bool_]]:
    """A window per pair, and whether it was cut: the longer of two texts first (Devlin et al. 2019, code)."""
    first = _encode(tokenizer, [text for text, _ in pairs])
    second = _encode(tokenizer, [pair or "" for _, pair in pairs])
    is_pair = np.array([pair is not None for _, pair in pairs])
    whole_a, whole_b = _lengths(first), _lengths(second)
    layout = tokenizer.segment_layout
    num_between = len(layout.between) * is_pair
    kept_a, kept_b = truncate_longest_first(whole_a, whole_b, max_seq_length - NUM_SINGLE_SPECIALS - num_between)
    prefix, suffix = [layout.prefix], [layout.suffix]
    pieces: Iterator[Sequence[int]] = chain.from_iterable(
        (prefix, a[:num_a], layout.between, b[:num_b], suffix) if pair else (prefix, a[:num_a], suffix)
        for a, b, num_a, num_b, pair in zip(first, second, kept_a, kept_b, is_pair, strict=True)
    )
    segments = np.stack([kept_a + np.where(is_pair, 1 + num_between, 2), kept_b + is_pair], axis=1)  # (W, 2)
    cu_seqlens = cumulative(segments.sum(axis=1))
    arrays: dict[str, Array] = {
        "input_ids": np.fromiter(chain.from_iterable(pieces), np.int32, count=int(cu_seqlens[-1])),
        "token_type_ids": segment_types(segments, layout.type_of_second),
        "cu_seqlens": cu_seqlens,
    }
    return arrays, (kept_a < whole_a) | (kept_b < whole_b)


def truncate_longest_first(
    a: NDArray[np.int64], b: NDArray[np.int64], budget: NDArray[np.int64] | int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths that are left when the longer text loses its last token, the second at equal lengths, until they fit."""
    budget = np.asarray(budget)
    room_b = np.maximum(budget // 2, budget - a)
    kept_b = np.minimum(b, room_b)
    return np.minimum(a, budget - kept_b), kept_b


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, tokenized in batches."""
    starts = range(0, len(texts), _TEXTS_AT_A_TIME)
    return [ids for start in starts for ids in tokenizer.encode_ids(texts[start : start + _TEXTS_AT_A_TIME])]


def _lengths(sequences: Sequence[list[int]]) -> NDArray[np.int64]:
    return np.fromiter(map(len, sequences), np.int64, count=len(sequences))


def _number_texts(arrays: Mapping[str, Array]) -> NDArray[np.int32]:
    """A number for each window, the same for those that a model cannot tell apart: (W,)."""
    texts = np.split(arrays["input_ids"], arrays["cu_seqlens"][1:-1])
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(text.tobytes(), len(numbers)) for text in texts], np.int32)


def _label_array(examples: Sequence[TextExample], labels: Sequence[str]) -> NDArray[np.generic]:
    number = {label: i for i, label in enumerate(labels)}
    dtype = np.float32 if isinstance(examples[0], RegressionExample) else np.int32
    return np.array([_label_value(example, number) for example in examples], dtype=dtype)


def _label_value(example: TextExample, number: Mapping[str, int]) -> float | list[bool]:
    """A value, NaN if unknown; a class's number, IGNORE_INDEX if unknown; for each label whether it is there."""
    if isinstance(example, RegressionExample):
        return math.nan if example.value is None else example.value
    if isinstance(example, MultiLabelExample):
        return [label in (example.labels or ()) for label in number]
    assert isinstance(example, ClassificationExample), "an example of another kind of task"
    return IGNORE_INDEX if example.label is None else number[example.label]
