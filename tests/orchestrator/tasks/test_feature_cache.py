"""Features on the storage: made once, anew if altered. Alone: pytest tests/orchestrator/tasks/test_feature_cache.py"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.specs import TaskSpec
from orchestrator.tasks.feature_cache import dataset_result, prepare_features
from orchestrator.tasks.features import Features
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.task import Task
from tests.orchestrator.tasks.definitions import options_of

LENGTHS = {"max_seq_length": 24}


@pytest.fixture
def task(tmp_path: Path) -> Task:
    (tmp_path / "train.tsv").write_text("sentence\tlabel\nthe house\t1\na river\t0\nbroken\n", encoding="utf-8")
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\nan engine\t1\n", encoding="utf-8")
    return load_task(TaskSpec(id="sst2", folder=str(tmp_path), on_bad_record="skip"))


@pytest.fixture
def prepare(task: Task, tokenizer: Tokenizer, tmp_path: Path) -> Callable[..., Features]:
    def prepared(split: Any = "train", cache: str = str(tmp_path / "cache"), **changes: Any) -> Features:
        task_, tokenizer_ = changes.pop("task", task), changes.pop("tokenizer", tokenizer)
        return prepare_features(task_, split, tokenizer_, options_of("classification", **LENGTHS | changes), cache)

    return prepared


def assert_equal(first: Features, second: Features) -> None:
    for name, array in first.arrays().items():
        np.testing.assert_array_equal(array, second.arrays()[name], strict=True)
    assert first.arrays().keys() == second.arrays().keys()
    assert (first.counts, first.fingerprint, first.path) == (second.counts, second.fingerprint, second.path)


def test_the_second_time_they_are_mapped_read_only_and_no_example_is_read(prepare, task: Task) -> None:
    made = prepare()
    unread = replace(task, reads={})
    loaded = prepare(task=unread)
    assert (made.reused, loaded.reused) == (False, True)
    assert_equal(made, loaded)
    assert unread.reads == {}
    assert isinstance(loaded.input_ids.base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        loaded.input_ids[0] = 1


@pytest.mark.parametrize("name", ["input_ids.npy", "labels.npy", "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
def test_altered_files_are_made_again(prepare, name: str, damage: str) -> None:
    made = prepare()
    path = Path(made.path) / name
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage == "flip":
        data[-3 if name != "manifest.json" else 0] ^= 1
        path.write_bytes(data)
    elif damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    again = prepare()
    assert not again.reused
    assert_equal(made, again)
    assert prepare().reused


def test_whatever_shapes_them_gives_them_another_place(prepare, task: Task) -> None:
    other_tokenizer = train_wordpiece(["the house and the river and an engine"] * 3, vocab_size=100)
    places = [
        prepare().path,
        prepare(max_seq_length=16).path,
        prepare(tokenizer=other_tokenizer).path,
        prepare(split="validation").path,
        prepare(task=replace(task, max_examples={"train": 1})).path,
    ]
    assert len(set(places)) == len(places)


def test_another_storage_keeps_them_as_well(prepare) -> None:
    made, loaded = (prepare(cache="memory://features-test/tasks") for _ in range(2))
    assert loaded.reused
    assert_equal(made, loaded)


def test_dataset_result_says_what_was_used(prepare, task: Task, tmp_path: Path) -> None:
    features = {split: prepare(split=split) for split in ("train", "validation")}
    result = dataset_result(task, features)
    assert (result.name, result.kind, result.reused) == ("sst2", "task", False)
    assert result.path == str(tmp_path / "cache")
    assert result.counts["num_train_examples"] == 2
    assert result.counts["num_validation_tokens"] == len(features["validation"].input_ids)
    train = result.files[0]
    assert (train.num_documents, train.num_bad_records) == (2, 1)
    assert train.num_bytes == (tmp_path / "train.tsv").stat().st_size
    assert result.fingerprint == dataset_result(task, features).fingerprint


def test_the_way_to_read_long_documents_makes_other_features_and_their_pooling_does_not(prepare) -> None:
    """Features of documents that are cut are those from before there was a choice."""
    cut, mean, maximum = (prepare(long_documents=way) for way in ("cut", "mean", "max"))
    assert cut.fingerprint == prepare().fingerprint != mean.fingerprint == maximum.fingerprint
    assert prepare(long_documents="mean", window_stride=3).fingerprint != mean.fingerprint
    assert options_of("classification").window_values().keys() == {"max_seq_length"}
