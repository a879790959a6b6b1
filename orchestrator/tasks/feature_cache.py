"""Features of any task type: examples become token arrays once, which lie on the storage and are shared between trials.

They lie under `CACHE/<fingerprint>/`, one `.npy` file per array, their digests in a manifest that is written last.
Where they are there and whole they are used, memory-mapped from a local folder; otherwise they are made again.
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bert_core.text.tokenization import MUCH_UNKNOWN, Tokenizer
from orchestrator.base.errors import SpecError, TaskDataError
from orchestrator.base.results import DatasetResult, FileCount, Split
from orchestrator.specs.task import Head
from orchestrator.storage import digest_file, join, read_bytes, read_json, write_bytes, write_json
from orchestrator.storage.uris import is_local, local_path
from orchestrator.tasks.features import A, Array, Features
from orchestrator.tasks.task import Task
from orchestrator.tasks.types import TASK_TYPES
from orchestrator.tasks.types.base import TaskDefinition, TaskOptions

_MANIFEST = "manifest.json"
FEATURES_VERSION = 7
"""Raised when the same examples would become other arrays."""


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
    return Features(**{**vars(windows), "counts": counts}, head=task.head, num_examples=len(examples))


def prepare_features(task: Task, split: Split, tokenizer: Tokenizer, options: TaskOptions, cache: str) -> Features[Any]:
    """A split's features, from the cache or made and kept there. Raises: TaskDataError, SpecError."""
    values = [FEATURES_VERSION, task.fingerprint(split), tokenizer.fingerprint, options.window_values()]
    fingerprint = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def make() -> Features[Any]:
        read = task.read(split)
        made = build_features(task, read.examples, tokenizer, options)
        from_file = {"num_bad_records": read.bad.count, "num_repaired": read.bad.num_repaired}
        return replace(made, counts={**made.counts, **from_file})

    return keep_features(cache, fingerprint, task.type.arrays_type, task.head, make)


def keep_features(
    cache: str, fingerprint: str, arrays_type: type[A], head: Head, make: Callable[[], Features[A]]
) -> Features[A]:
    """Read features from the cache, or make them and keep them there."""
    folder = join(cache, fingerprint)
    kept: dict[str, Any] = {"fingerprint": fingerprint, "path": folder}
    found = _read_kept(folder)
    if found is not None:
        return Features.from_arrays(*found, head=head, arrays_type=arrays_type, reused=True, **kept)
    features = replace(make(), **kept)
    _write(folder, features)
    return features


def dataset_result(task: Task, features: Mapping[Split, Features[Any]]) -> DatasetResult:
    """Describe a task's data for the registry, as it was used."""
    fingerprints = {split: made.fingerprint for split, made in features.items()}
    counts: dict[str, int] = {}
    files = []
    for split, made in features.items():
        counts |= {f"num_{split}_{name.removeprefix('num_')}": count for name, count in made.counts.items()}
        data = read_bytes(task.file(split))
        numbers = made.counts["num_examples"], made.counts["num_bad_records"]
        files.append(FileCount(task.file(split), len(data), *numbers, hashlib.sha256(data).hexdigest()))
    return DatasetResult(
        name=task.id,
        kind="task",
        fingerprint=hashlib.sha256(json.dumps(fingerprints, sort_keys=True).encode()).hexdigest(),
        path=next(iter(features.values())).path.rpartition("/")[0],
        counts=counts,
        files=files,
        reused=all(made.reused for made in features.values()),
    )


def _write(folder: str, features: Features[Any]) -> None:
    digests = {}
    for name, array in features.arrays().items():
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        digests[name] = write_bytes(join(folder, f"{name}.npy"), buffer.getbuffer())
    write_json(join(folder, _MANIFEST), {"arrays": digests, "counts": dict(features.counts)})


def _read_kept(folder: str) -> tuple[dict[str, Array], dict[str, int]] | None:
    """The arrays and counts that a folder keeps; None when one is missing or altered."""
    try:
        manifest = read_json(join(folder, _MANIFEST))
        arrays = {name: _read_array(join(folder, f"{name}.npy"), digest) for name, digest in manifest["arrays"].items()}
        return arrays, manifest["counts"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _read_array(path: str, digest: str) -> Array:
    data = None if is_local(path) else read_bytes(path)
    if digest != (digest_file(path) if data is None else hashlib.sha256(data).hexdigest()):
        raise ValueError(f"{path} was altered")
    if data is None:  # memory-mapped
        return np.asarray(np.load(local_path(path), mmap_mode="r", allow_pickle=False))
    return np.asarray(np.load(io.BytesIO(data), allow_pickle=False))


def unread_notes(features: Features[Any]) -> Iterator[str]:
    """Yield warnings of input that a model does not see: truncated ends, answers in no window, unknown tokens."""
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
    if counts["num_unknown_tokens"] > MUCH_UNKNOWN * num_tokens:
        yield (
            f"{counts['num_unknown_tokens'] / num_tokens:.0%} of the tokens are unknown ([UNK]): the tokenizer learned "
            "its vocabulary from other text, or has no room for this text's characters; choose another"
        )
