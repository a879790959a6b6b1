"""Examples of any task type to features."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import SpecError, TaskDataError
from orchestrator.tasks.features import Features
from orchestrator.tasks.options import TaskOptions
from orchestrator.tasks.types import TASK_TYPES
from orchestrator.tasks.types.base import TaskDefinition

_MUCH_UNKNOWN = 0.1
"""Share of unknown tokens from which on little is left to learn from."""


def build_features(
    task: TaskDefinition, examples: Sequence[Any], tokenizer: Tokenizer, options: TaskOptions
) -> Features[Any]:
    """Tokenize examples of the task's type, labeled or not.

    Raises: SpecError when the lengths leave no room for text, TaskDataError when there is no example.
    """
    if not examples:
        raise TaskDataError("there is no example to tokenize")
    if options.max_seq_length < 4:
        raise SpecError(
            f"recipe.max_seq_length {options.max_seq_length} leaves no room for text beside [CLS] and [SEP]; raise it"
        )
    windows = task.type.windows(task, examples, tokenizer, options)
    counts = {
        "num_examples": len(examples),
        "num_windows": len(windows.cu_seqlens) - 1,
        "num_tokens": len(windows.input_ids),
        "num_unknown_tokens": int(np.count_nonzero(windows.input_ids == tokenizer.unk_id)),
        **windows.counts,
    }
    return Features(
        head=task.head,
        num_examples=len(examples),
        input_ids=windows.input_ids,
        token_type_ids=windows.token_type_ids,
        cu_seqlens=windows.cu_seqlens,
        example_index=windows.example_index,
        head_arrays=windows.head_arrays,
        counts=counts,
    )


def unread_notes(features: Features[Any]) -> Iterator[str]:
    """Yield what a model cannot see of the examples: ends that are cut, answers without a window, unknown tokens."""
    counts = features.counts
    num_examples, num_tokens = counts["num_examples"], counts["num_tokens"]
    if num_truncated := counts.get("num_truncated"):
        num_cut = counts.get("num_tokens_cut", 0)
        share = f" ({num_cut / (num_tokens + num_cut):.0%} of all tokens)" if num_cut else ""
        has_windows = "long_documents" in TASK_TYPES[features.head].recipe_fields
        remedy = "; recipe.long_documents mean or max reads them in windows" if has_windows else ""
        yield (
            f"{num_truncated:,} of {num_examples:,} examples are longer than recipe.max_seq_length: their ends are not "
            f"read{share}{remedy}"
        )
    if num_unreachable := counts.get("num_unreachable"):
        yield (
            f"{num_unreachable:,} of {num_examples:,} questions have an answer that is whole in no window, and teach "
            "that there is none; raise recipe.max_seq_length"
        )
    if counts["num_unknown_tokens"] > _MUCH_UNKNOWN * num_tokens:
        yield (
            f"{counts['num_unknown_tokens'] / num_tokens:.0%} of the tokens are unknown ([UNK]): the tokenizer learned "
            "its vocabulary from other text, or has no room for this text's characters; choose another"
        )
