"""A split as the model reads it: token arrays laid end to end.

An example is one window of tokens, or several where a passage or a sentence is longer than a window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import SpecError, TaskDataError
from orchestrator.results import Split
from orchestrator.specs.recipe import Context
from orchestrator.specs.task import Head
from orchestrator.tasks.examples import Example, MultipleChoiceExample, NerExample, QaExample, TextExample
from orchestrator.tasks.ner_features import build_ner_windows
from orchestrator.tasks.qa_features import build_qa_windows
from orchestrator.tasks.tabular_columns import NO_COLUMNS, TabularColumns
from orchestrator.tasks.text_features import build_choice_windows, build_dual_windows, build_text_windows
from orchestrator.tasks.token_windows import Array

_EMPTY: Mapping[str, Array] = {
    "labels": np.zeros(0, np.int32),
    "extra": np.zeros((0, 0), np.float32),
    "token_labels": np.zeros(0, np.int32),
    "word_starts": np.zeros(0, np.int64),
    "num_words": np.zeros(0, np.int32),
    "start_positions": np.zeros(0, np.int32),
    "end_positions": np.zeros(0, np.int32),
    "offsets": np.zeros((0, 2), np.int32),
    "states": np.zeros((0,), np.float32),
}
ARRAYS = ("input_ids", "token_type_ids", "cu_seqlens", "example_index", *_EMPTY)
"""The names of the arrays of `Features`."""


@dataclass(frozen=True)
class Features:
    """Windows of tokens. T tokens in W windows of N examples; arrays of other heads are empty."""

    head: Head
    num_examples: int
    input_ids: NDArray[np.int32]  # (T,)
    token_type_ids: NDArray[np.int8]  # (T,)
    cu_seqlens: NDArray[np.int64]  # (W+1,)
    example_index: NDArray[np.int32]  # (W,), ascending
    labels: NDArray[np.generic]
    """(N,) int32 class numbers or places, float32 values; (N, C) 0 or 1 (multi_label); (N, 2) numbers of two texts that
    belong together (embedding), equal where their tokens are."""
    extra: NDArray[np.float32]  # (N, E) what a person's own columns say
    token_labels: NDArray[np.int32]  # (T,) tag numbers on first sub-tokens, -100 elsewhere (ner)
    word_starts: NDArray[np.int64]  # one per word of the split, in order: its first sub-token (ner)
    num_words: NDArray[np.int32]  # (N,) (ner)
    start_positions: NDArray[np.int32]  # (W,) within the window; 0, the [CLS], where it lacks the answer (qa)
    end_positions: NDArray[np.int32]  # (W,), inclusive (qa)
    offsets: NDArray[np.int32]  # (T, 2) characters of the passage; -1 off the passage (qa)
    states: NDArray[np.float32]  # (T, …) what a frozen encoder gave for the tokens, where it was kept
    counts: Mapping[str, int] = field(default_factory=dict)
    """`num_examples`, `num_windows`, `num_tokens`, `num_truncated` examples, `num_bad_records`, …"""
    split: Split | None = None
    fingerprint: str = ""
    path: str = ""
    """The folder that keeps them."""
    reused: bool = False

    @property
    def num_windows(self) -> int:
        """W."""
        return len(self.cu_seqlens) - 1

    @property
    def group_size(self) -> int:
        """Windows that stay together in a batch: an example's choices, equally many for each, or its two texts
        (embedding); otherwise one.
        """
        return self.num_windows // self.num_examples if self.head in ("multiple_choice", "embedding") else 1

    @property
    def group_lengths(self) -> NDArray[np.int64]:
        """Tokens of each group of windows, (G,)."""
        return np.add.reduceat(self.lengths, np.arange(0, self.num_windows, self.group_size))

    def windows_of(self, groups: NDArray[np.integer]) -> NDArray[np.int64]:
        """The windows of some groups, group by group."""
        return (groups[:, None] * self.group_size + np.arange(self.group_size)).ravel()

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each window, (W,)."""
        return np.diff(self.cu_seqlens)

    def token_index(self, windows: NDArray[np.integer]) -> NDArray[np.int64]:
        """Where the tokens of some windows stand in the flat arrays, laid end to end in the order asked for."""
        starts, lengths = self.cu_seqlens[windows], self.lengths[windows]
        first = np.cumsum(lengths) - lengths
        return np.repeat(starts - first, lengths) + np.arange(lengths.sum())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], head: Head, counts: Mapping[str, int], **kept: Any) -> Self:
        """Features with empty arrays where `arrays` has none; `kept` are split, fingerprint, path and reused."""
        values: dict[str, Any] = {**_EMPTY, **arrays}
        return cls(head=head, num_examples=counts["num_examples"], counts=counts, **values, **kept)

    def arrays(self) -> dict[str, Array]:
        """The arrays that this head has, by name."""
        return {name: getattr(self, name) for name in ARRAYS if getattr(self, name).size}


def join_features(parts: Sequence[Features]) -> Features:
    """Several splits of a task as one, example after example.

    Numbers of equal texts (embedding) agree within a split alone: it is the first that is learnt by them.
    """
    first, *others = parts
    for part in others:
        places = {
            "cu_seqlens": part.cu_seqlens[1:] + len(first.input_ids),
            "example_index": part.example_index + np.int32(first.num_examples),
            "word_starts": part.word_starts + len(first.input_ids),
        }
        arrays = {
            name: np.concatenate([array, places.get(name, getattr(part, name))])
            for name, array in first.arrays().items()
        }
        counts = {"num_examples": first.num_examples + part.num_examples}
        first = Features.from_arrays(arrays, first.head, counts)
    return first


def build_features(
    head: Head,
    labels: Sequence[str],
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    doc_stride: int = 128,
    max_query_length: int = 64,
    context: Context = "sentence",
    columns: TabularColumns = NO_COLUMNS,
) -> Features:
    """Tokenize examples, labeled or not; `labels` and `columns` are the task's, in the order that the model knows.

    Raises: SpecError when the lengths leave no room for text, TaskDataError when there is no example.
    """
    if not examples:
        raise TaskDataError("there is no example to tokenize")
    if max_seq_length < 4:
        raise SpecError(
            f"recipe.max_seq_length {max_seq_length} leaves no room for text beside [CLS] and [SEP]; raise it"
        )
    if head == "qa":
        questions = cast(Sequence[QaExample], examples)
        windows = build_qa_windows(questions, tokenizer, max_seq_length, doc_stride, max_query_length)
    elif head == "ner":
        sentences = cast(Sequence[NerExample], examples)
        windows = build_ner_windows(sentences, labels, tokenizer, max_seq_length, context)
    elif head == "embedding":
        windows = build_dual_windows(cast(Sequence[TextExample], examples), labels, tokenizer, max_seq_length)
    elif head == "multiple_choice":
        windows = build_choice_windows(cast(Sequence[MultipleChoiceExample], examples), tokenizer, max_seq_length)
    else:
        texts = cast(Sequence[TextExample], examples)
        windows = build_text_windows(texts, labels, columns, tokenizer, max_seq_length)
    counts = {
        "num_examples": len(examples),
        "num_windows": len(windows.arrays["cu_seqlens"]) - 1,
        "num_tokens": len(windows.arrays["input_ids"]),
        **windows.counts,
    }
    return Features.from_arrays(windows.arrays, head, counts)
