"""Texts and pairs of texts as windows of tokens laid end to end: `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`.

Between a and b stand as many separators as in the tokenizer's own layout of a pair. Texts that are longer than a window
are cut, or read in several windows.

Shapes: N texts or pairs, W windows, T tokens.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from bert_core.text.segment_layout import NUM_SINGLE_SPECIALS
from bert_core.text.tokenization import Tokenizer
from orchestrator.tasks.features import HeadArrays, Windows

_TEXTS_AT_A_TIME = 4096


def build_text_windows(
    pairs: Sequence[tuple[str, str | None]],
    tokenizer: Tokenizer,
    max_seq_length: int,
    is_cut: bool = True,
    stride: int | None = None,
    sizes: Sequence[int] | None = None,
) -> Windows[HeadArrays]:
    """A window per pair, or per text without a second; the longer of two texts is cut first (Devlin et al. 2019, code).

    Args:
        is_cut: where not, what is too long gets windows over the longer of its texts, each with the other one, which
            keeps half of a window at most.
        stride: tokens between the starts of two windows; as many as a window holds when left out.
        sizes: number of each example's texts or pairs, one when left out.
    """
    first = _encode(tokenizer, [text for text, _ in pairs])
    second = _encode(tokenizer, [pair or "" for _, pair in pairs])
    is_pair = np.array([pair is not None for _, pair in pairs])
    whole_a, whole_b = (np.fromiter(map(len, texts), np.int64, count=len(texts)) for texts in (first, second))
    layout = tokenizer.segment_layout
    num_between = len(layout.between) * is_pair
    budget = max_seq_length - NUM_SINGLE_SPECIALS - num_between
    kept_a, kept_b = truncate_longest_first(whole_a, whole_b, budget)
    num_cut = whole_a - kept_a + whole_b - kept_b  # (N,) tokens at the ends of texts that no window has
    spans = np.stack([np.arange(len(pairs)), 0 * kept_a, kept_a, 0 * kept_b, kept_b], axis=1)  # (W, 5)
    if not is_cut:
        is_long = num_cut > 0
        windows = [_long_spans(n, whole_a[n], whole_b[n], budget[n], stride) for n in np.flatnonzero(is_long).tolist()]
        spans = np.concatenate([spans[~is_long], np.array([*chain.from_iterable(windows)], np.int64).reshape(-1, 5)])
        spans = spans[spans[:, 0].argsort(kind="stable")]
        num_cut = np.maximum(np.minimum(whole_a, whole_b) - budget // 2, 0) * is_long
    text_index, begin_a, end_a, begin_b, end_b = spans.T
    in_pair = is_pair[text_index]
    prefix, suffix = [layout.prefix], [layout.suffix]
    pieces: Iterator[Sequence[int]] = chain.from_iterable(
        (prefix, first[i][a:to_a], layout.between, second[i][b:to_b], suffix)
        if is_pair[i]
        else (prefix, first[i][a:to_a], suffix)
        for i, a, to_a, b, to_b in spans.tolist()
    )
    of_a = end_a - begin_a + np.where(in_pair, 1 + num_between[text_index], 2)
    segments = np.stack([of_a, end_b - begin_b + in_pair], axis=1)  # (W, 2)
    cu_seqlens = cumulative(segments.sum(axis=1))
    owner = np.arange(len(pairs)) if sizes is None else np.repeat(np.arange(len(sizes)), sizes)  # (N,) examples
    return Windows(
        input_ids=np.fromiter(chain.from_iterable(pieces), np.int32, count=int(cu_seqlens[-1])),
        token_type_ids=segment_types(segments, layout.type_of_second),
        cu_seqlens=cu_seqlens,
        example_index=owner[text_index].astype(np.int32),
        head_arrays=HeadArrays(),
        counts={"num_truncated": len(np.unique(owner[num_cut > 0])), "num_tokens_cut": int(num_cut.sum())},
    )


def _long_spans(index: int, num_a: int, num_b: int, budget: int, stride: int | None) -> Iterator[list[int]]:
    """Yield the windows of a pair that is too long: its index, the begin and end of its first text, of its second."""
    kept = min(num_a, num_b, budget // 2)
    for begin, end in passage_windows(max(num_a, num_b), budget - kept, stride or budget):
        yield [index, begin, end, 0, kept] if num_a >= num_b else [index, 0, kept, begin, end]


def truncate_longest_first(
    a: NDArray[np.int64], b: NDArray[np.int64], budget: NDArray[np.int64] | int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths that are left when the longer text loses its last token, the second at equal lengths, until they fit."""
    budget = np.asarray(budget)
    kept_b = np.minimum(b, np.maximum(budget // 2, budget - a))
    return np.minimum(a, budget - kept_b), kept_b


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, tokenized in batches."""
    starts = range(0, len(texts), _TEXTS_AT_A_TIME)
    return [ids for start in starts for ids in tokenizer.encode_ids(texts[start : start + _TEXTS_AT_A_TIME])]


def cumulative(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """0 and the running sums of `lengths`."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def segment_types(segments: NDArray[np.int64], type_of_second: int) -> NDArray[np.int8]:
    """Token types of windows whose segments a and b have these lengths, (W, 2)."""
    return np.repeat(np.tile(np.array([0, type_of_second], np.int8), len(segments)), segments.ravel())


def passage_windows(num_tokens: int, room: int, stride: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each window over a passage; none lies wholly within the one before, no token is left out."""
    begin = 0
    while True:
        end = min(begin + room, num_tokens)
        yield begin, end
        if end == num_tokens:
            return
        begin += min(room, stride)


def fill_windows(pieces: Sequence[list[int]], budget: int) -> Iterator[list[list[int]]]:
    """Pieces of tokens in order, as many to a window as fit; none may be longer than the budget.

    >>> list(fill_windows([[1, 2], [3], [4, 5]], budget=3))
    [[[1, 2], [3]], [[4, 5]]]
    """
    window: list[list[int]] = []
    used = 0
    for piece in pieces:
        if used + len(piece) > budget:
            yield window
            window, used = [], 0
        window.append(piece)
        used += len(piece)
    yield window
