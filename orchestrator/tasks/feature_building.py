"""Examples of any task type to features."""

from collections.abc import Sequence
from typing import Any

from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import SpecError, TaskDataError
from orchestrator.tasks.features import Features
from orchestrator.tasks.options import TaskOptions
from orchestrator.tasks.types.base import TaskDefinition


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
