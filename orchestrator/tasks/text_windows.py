"""Texts and pairs of texts as windows of tokens: `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`.

Between a and b stand as many separators as in the tokenizer's own layout of a pair.

Shapes: W windows, T tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from bert_core.text.segment_layout import NUM_SINGLE_SPECIALS
from bert_core.text.tokenization import Tokenizer
from orchestrator.tasks.token_windows import cumulative, segment_types

_TEXTS_AT_A_TIME = 4096


@dataclass(frozen=True)
class TextWindows:
    """One window for each text or pair."""

    input_ids: NDArray[np.int32]  # (T,)
    token_type_ids: NDArray[np.int8]  # (T,)
    cu_seqlens: NDArray[np.int64]  # (W+1,)
    num_cut: NDArray[np.int64]  # (W,) tokens at the ends of its texts that the window lacks


def build_text_windows(
    pairs: Sequence[tuple[str, str | None]], tokenizer: Tokenizer, max_seq_length: int
) -> TextWindows:
    """A window per pair, or per text without a second; the longer of two texts is cut first.

    Devlin et al. 2019, code.
    """
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
    return TextWindows(
        input_ids=np.fromiter(chain.from_iterable(pieces), np.int32, count=int(cu_seqlens[-1])),
        token_type_ids=segment_types(segments, layout.type_of_second),
        cu_seqlens=cu_seqlens,
        num_cut=whole_a - kept_a + whole_b - kept_b,
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
    """Token ids of each text, tokenized in batches."""
    starts = range(0, len(texts), _TEXTS_AT_A_TIME)
    return [ids for start in starts for ids in tokenizer.encode_ids(texts[start : start + _TEXTS_AT_A_TIME])]


def _lengths(sequences: Sequence[list[int]]) -> NDArray[np.int64]:
    return np.fromiter(map(len, sequences), np.int64, count=len(sequences))
