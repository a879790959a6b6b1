"""A split as the model reads it: windows of tokens laid end to end, and beside them the arrays of the task's type.

An example is one window, or several where a passage or a sentence is longer than a window. A window of a text is
`[CLS] a [SEP]`, one of a pair `[CLS] a [SEP] b [SEP]`, with as many separators between a and b as in the tokenizer's
own layout of a pair.

Shapes: T tokens in W windows of N examples, G groups of windows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from bert_core.examples.segments import NUM_SINGLE_SPECIALS
from bert_core.text.tokenization import Tokenizer
from orchestrator.specs.task import Head

Array = NDArray[np.generic]
_TEXTS_AT_A_TIME = 4096
_COMMON = ("input_ids", "token_type_ids", "cu_seqlens", "example_index")
_ALONG = "along"
PER_EXAMPLE, PER_WINDOW, PER_TOKEN, TOKEN_PLACES = ({_ALONG: it} for it in ("examples", "windows", "tokens", "places"))
"""Metadata of a field of `HeadArrays`: one row for each example (N, …), window (W, …) or token (T, …); or places of
tokens in the flat arrays, ascending, any number of them."""


@dataclass(frozen=True)
class HeadArrays:
    """The arrays that one task type adds to the tokens: labels, and what decoding needs.

    A subclass is a frozen dataclass of arrays, each a `field` with the metadata `PER_EXAMPLE`, `PER_WINDOW`,
    `PER_TOKEN` or `TOKEN_PLACES`: so splits are joined, and tokens left out, without knowing the type. An array may be
    None.
    """

    are_windows_grouped: ClassVar[bool] = False
    """Whether the windows of an example stay together in a batch."""

    @property
    def tabular_features(self) -> NDArray[np.float32] | None:
        """(N, E) numbers that a head reads beside the text; None for types without them."""
        return None

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """The fields of this class among `arrays`, by name."""
        return cls(**{part.name: arrays[part.name] for part in fields(cls) if part.name in arrays})

    def by_name(self) -> dict[str, Array]:
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: array for name, array in values.items() if array is not None}

    def followed_by(self, other: Self, num_tokens: int) -> Self:
        """The arrays of two splits as one; the first has `num_tokens` tokens."""
        joined = {}
        for part in fields(self):
            first, second = getattr(self, part.name), getattr(other, part.name)
            if first is not None:
                shift = num_tokens if part.metadata[_ALONG] == "places" else 0
                joined[part.name] = np.concatenate([first, second + shift if shift else second])
        return replace(self, **joined)

    def at_tokens(self, rows: NDArray[np.int64]) -> Self:
        """The arrays of a split of which only the tokens `rows`, ascending, are left; places must be among them."""
        changed = {}
        for part in fields(self):
            values = getattr(self, part.name)
            if part.metadata[_ALONG] == "tokens":
                changed[part.name] = values[rows]
            elif part.metadata[_ALONG] == "places":
                changed[part.name] = np.searchsorted(rows, values)
        return replace(self, **changed)


A = TypeVar("A", bound=HeadArrays)
B = TypeVar("B", bound=HeadArrays)


@dataclass(frozen=True, kw_only=True)
class Windows(Generic[A]):
    """Windows of tokens as a task type makes them of examples."""

    input_ids: NDArray[np.int32]  # (T,)
    token_type_ids: NDArray[np.int8]  # (T,)
    cu_seqlens: NDArray[np.int64]  # (W+1,)
    example_index: NDArray[np.int32]  # (W,), ascending
    head_arrays: A
    """The arrays of the task's type."""
    counts: Mapping[str, int]
    """Counts made on the way: `num_truncated` examples, …; of features also `num_examples`, `num_windows`, …"""

    def with_arrays(self, head_arrays: B) -> "Windows[B]":
        return Windows(**{**vars(self), "head_arrays": head_arrays})


@dataclass(frozen=True, kw_only=True)
class Features(Windows[A]):
    """The windows of a split, what a frozen encoder gave for them, and where they are kept."""

    head: Head
    """The name of the task type that made them."""
    num_examples: int
    states: NDArray[np.float32] | None = None
    """(T, …) what a frozen encoder gave for the tokens, where it was kept."""
    fingerprint: str = ""
    path: str = ""
    """The folder that keeps them."""
    reused: bool = False

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, Array], counts: Mapping[str, int], head: Head, arrays_type: type[A], **kept: Any
    ) -> Self:
        """Features of arrays by name; `kept` are fingerprint, path and reused."""
        common: dict[str, Any] = {name: arrays.get(name) for name in (*_COMMON, "states")}
        own = arrays_type.from_arrays(arrays)
        return cls(head=head, num_examples=counts["num_examples"], **common, head_arrays=own, counts=counts, **kept)

    def arrays(self) -> dict[str, Array]:
        states = {} if self.states is None else {"states": self.states}
        return {name: getattr(self, name) for name in _COMMON} | states | self.head_arrays.by_name()

    @property
    def num_windows(self) -> int:
        """Number of windows, W."""
        return len(self.cu_seqlens) - 1

    @cached_property
    def group_starts(self) -> NDArray[np.int64]:
        """(G+1,) the first window of each group that stays together in a batch, and the end of the last one."""
        if not self.head_arrays.are_windows_grouped:
            return np.arange(self.num_windows + 1)
        return np.searchsorted(self.example_index, np.arange(self.num_examples + 1))

    @property
    def group_lengths(self) -> NDArray[np.int64]:
        """Tokens of each group of windows, (G,)."""
        return np.diff(self.cu_seqlens[self.group_starts])

    def windows_of(self, groups: NDArray[np.integer]) -> NDArray[np.int64]:
        """The windows of some groups, group by group."""
        starts = self.group_starts[groups]
        return _ranges(starts, self.group_starts[groups + 1] - starts)

    def begins_group(self, windows: NDArray[np.integer]) -> NDArray[np.bool_]:
        is_first: NDArray[np.bool_] = self.group_starts[np.searchsorted(self.group_starts, windows)] == windows
        return is_first

    def examples_of(self, windows: NDArray[np.integer]) -> NDArray[np.int32]:
        """The example of each group, from the windows of some groups."""
        examples: NDArray[np.int32] = self.example_index[windows[self.begins_group(windows)]]
        return examples

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each window, (W,)."""
        return np.diff(self.cu_seqlens)

    def token_index(self, windows: NDArray[np.integer]) -> NDArray[np.int64]:
        """Places of some windows' tokens in the flat arrays, laid end to end in the order asked for."""
        return _ranges(self.cu_seqlens[windows], self.lengths[windows])

    def at_tokens(self, rows: NDArray[np.int64], states: NDArray[np.float32]) -> Self:
        """The same windows with some of their tokens, ascending `rows`, and what the encoder gave for these."""
        return replace(
            self,
            input_ids=self.input_ids[rows],
            token_type_ids=self.token_type_ids[rows],
            cu_seqlens=np.searchsorted(rows, self.cu_seqlens),
            head_arrays=self.head_arrays.at_tokens(rows),
            states=states,
        )


def _ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Consecutive numbers from each start on, as many as its length says, laid end to end."""
    first = np.cumsum(lengths) - lengths
    return np.repeat(starts - first, lengths) + np.arange(lengths.sum())


def join_features(parts: Sequence[Features[A]]) -> Features[A]:
    """Several splits of a task as one, example after example.

    Numbers of equal texts (embedding) agree within a split alone: it is the first that is learned by them.
    """
    first, *others = parts
    for part in others:
        num_examples = first.num_examples + part.num_examples
        first = Features(
            head=first.head,
            num_examples=num_examples,
            input_ids=np.concatenate([first.input_ids, part.input_ids]),
            token_type_ids=np.concatenate([first.token_type_ids, part.token_type_ids]),
            cu_seqlens=np.concatenate([first.cu_seqlens, part.cu_seqlens[1:] + len(first.input_ids)]),
            example_index=np.concatenate([first.example_index, part.example_index + np.int32(first.num_examples)]),
            head_arrays=first.head_arrays.followed_by(part.head_arrays, len(first.input_ids)),
            counts={"num_examples": num_examples},
        )
    return first


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
