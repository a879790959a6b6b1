"""A split as the model reads it: token arrays laid end to end, and beside them the arrays of the task's type.

An example is one window of tokens, or several where a passage or a sentence is longer than a window.

Shapes: T tokens in W windows of N examples, G groups of windows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from orchestrator.results import Split
from orchestrator.specs.task import Head

Array = NDArray[np.generic]
_COMMON = ("input_ids", "token_type_ids", "cu_seqlens", "example_index")
_ALONG = "along"
PER_EXAMPLE = {_ALONG: "examples"}
"""Metadata of a field of `HeadArrays` with one row for each example: (N, …)."""
PER_WINDOW = {_ALONG: "windows"}
"""Metadata of a field of `HeadArrays` with one row for each window: (W, …)."""
PER_TOKEN = {_ALONG: "tokens"}
"""Metadata of a field of `HeadArrays` with one row for each token: (T, …)."""
TOKEN_PLACES = {_ALONG: "places"}
"""Metadata of a field of `HeadArrays` whose values are places of tokens in the flat arrays, ascending: any length."""


@dataclass(frozen=True)
class HeadArrays:
    """The arrays that one task type adds to the tokens: labels, and what decoding needs.

    A subclass is a frozen dataclass of arrays, each a `field` with the metadata `PER_EXAMPLE`, `PER_WINDOW`,
    `PER_TOKEN` or `TOKEN_PLACES`: so splits are joined, and tokens left out, without knowing the type. An array may be
    None.
    """

    are_windows_grouped: ClassVar[bool] = False
    """Whether the windows of an example stay together in a batch."""

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
    split: Split | None = None
    fingerprint: str = ""
    path: str = ""
    """The folder that keeps them."""
    reused: bool = False

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, Array], counts: Mapping[str, int], head: Head, arrays_type: type[A], **kept: Any
    ) -> Self:
        """Features of arrays by name; `kept` are split, fingerprint, path and reused."""
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
