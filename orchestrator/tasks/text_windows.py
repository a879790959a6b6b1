"""Texts and pairs of texts as windows of tokens: `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`.

Between a and b stand as many separators as in the tokenizer's own layout of a pair. Texts that are longer than a window
are cut, or read in several windows.

Shapes: N texts or pairs, W windows, T tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from bert_core.text.segment_layout import NUM_SINGLE_SPECIALS
from bert_core.text.tokenization import Tokenizer
from orchestrator.tasks.token_windows import cumulative, passage_windows, segment_types

_TEXTS_AT_A_TIME = 4096


@dataclass(frozen=True)
class TextWindows:
    """Windows of texts or pairs, in their order."""

    input_ids: NDArray[np.int32]  # (T,)
    token_type_ids: NDArray[np.int8]  # (T,)
    cu_seqlens: NDArray[np.int64]  # (W+1,)
    example_index: NDArray[np.int32]  # (W,) the text or pair of each, ascending
    num_cut: NDArray[np.int64]  # (N,) tokens at the ends of its texts that no window has


def build_text_windows(
    pairs: Sequence[tuple[str, str | None]],
    tokenizer: Tokenizer,
    max_seq_length: int,
    is_cut: bool = True,
    stride: int | None = None,
) -> TextWindows:
    """A window per pair, or per text without a second; the longer of two texts is cut first (Devlin et al. 2019, code).

    Args:
        is_cut: where not, what is too long gets windows over the longer of its texts, each with the other one, which
            keeps half of a window at most.
        stride: tokens between the starts of two windows; as many as a window holds when left out.
    """
    first = _encode(tokenizer, [text for text, _ in pairs])
    second = _encode(tokenizer, [pair or "" for _, pair in pairs])
    is_pair = np.array([pair is not None for _, pair in pairs])
    whole_a, whole_b = _lengths(first), _lengths(second)
    layout = tokenizer.segment_layout
    num_between = len(layout.between) * is_pair
    budget = max_seq_length - NUM_SINGLE_SPECIALS - num_between
    kept_a, kept_b = truncate_longest_first(whole_a, whole_b, budget)
    num_cut = whole_a - kept_a + whole_b - kept_b
    spans = np.stack([np.arange(len(pairs)), 0 * kept_a, kept_a, 0 * kept_b, kept_b], axis=1)  # (W, 5)
    if not is_cut:
        is_long = num_cut > 0
        windows = [_long_spans(n, whole_a[n], whole_b[n], budget[n], stride) for n in np.flatnonzero(is_long).tolist()]
        spans = np.concatenate([spans[~is_long], np.array([*chain.from_iterable(windows)], np.int64).reshape(-1, 5)])
        spans = spans[spans[:, 0].argsort(kind="stable")]
        num_cut = np.maximum(np.minimum(whole_a, whole_b) - budget // 2, 0) * is_long
    example_index, begin_a, end_a, begin_b, end_b = spans.T
    in_pair = is_pair[example_index]
    prefix, suffix = [layout.prefix], [layout.suffix]
    pieces: Iterator[Sequence[int]] = chain.from_iterable(
        (prefix, first[i][a:to_a], layout.between, second[i][b:to_b], suffix)
        if is_pair[i]
        else (prefix, first[i][a:to_a], suffix)
        for i, a, to_a, b, to_b in spans.tolist()
    )
    of_a = end_a - begin_a + np.where(in_pair, 1 + num_between[example_index], 2)
    segments = np.stack([of_a, end_b - begin_b + in_pair], axis=1)  # (W, 2)
    cu_seqlens = cumulative(segments.sum(axis=1))
    return TextWindows(
        input_ids=np.fromiter(chain.from_iterable(pieces), np.int32, count=int(cu_seqlens[-1])),
        token_type_ids=segment_types(segments, layout.type_of_second),
        cu_seqlens=cu_seqlens,
        example_index=example_index.astype(np.int32),
        num_cut=num_cut,
    )


def _long_spans(index: int, num_a: int, num_b: int, budget: int, stride: int | None) -> Iterator[list[int]]:
    """Yield the windows of a pair that is too long: its index, the begin and end of its first text, of its second."""
    kept = min(num_a, num_b, budget // 2)
    for begin, end in passage_windows(max(num_a, num_b), budget - kept, stride or budget):
        yield [index, begin, end, 0, kept] if num_a > num_b else [index, 0, kept, begin, end]


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
