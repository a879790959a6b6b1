"""Weights as other tools leave them: in several files, of torch.save, under a wrapper's names; and what is refused.

Run alone: pytest tests/bert_core/checkpoints/test_weight_files.py
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bert_core.checkpoints.pretrained import read_weights
from bert_core.errors import CheckpointError
from bert_core.heads import BertForPreTraining
from tests.bert_core.reference import scattered, small_config

MODEL = scattered(BertForPreTraining.from_config(small_config()))
FIRST = "bert.embeddings.word_embeddings.weight"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 440473133\n"
Weights = dict[str, Tensor]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pretraining model's folder, whose weights each test writes anew."""
    MODEL.save_pretrained(tmp_path)
    (tmp_path / "manifest.json").unlink()
    return tmp_path


def take_weights(folder: Path) -> Weights:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    return weights


def write_safetensors(folder: Path, weights: Weights) -> None:
    save_file(weights, folder / "model.safetensors")


def write_bin(folder: Path, weights: Mapping[str, Any]) -> None:
    torch.save(weights, folder / "pytorch_model.bin")


def write_old_bin(folder: Path, weights: Weights) -> None:
    tied = {**weights, "cls.predictions.decoder.weight": weights[FIRST]}
    torch.save(tied, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


def write_shards(
    folder: Path, weights: Weights, stem: str = "model", ending: str = "safetensors", save: Callable = save_file
) -> None:
    places = {name: f"{stem}-{len(name) % 2 + 1:05}-of-00002.{ending}" for name in weights}
    for file in set(places.values()):
        save({name: weights[name] for name in weights if places[name] == file}, folder / file)
    (folder / f"{stem}.{ending}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def write_pickled_shards(folder: Path, weights: Weights) -> None:
    write_shards(folder, weights, "pytorch_model", "bin", torch.save)


def write_wrapped(folder: Path, weights: Weights) -> None:
    write_safetensors(folder, {f"module._orig_mod.{name}": tensor for name, tensor in weights.items()})


@pytest.mark.parametrize("write", [write_bin, write_old_bin, write_shards, write_pickled_shards, write_wrapped])
def test_weights_are_read_however_they_were_saved(folder: Path, write: Callable[[Path, Weights], None]) -> None:
    write(folder, take_weights(folder))
    model = BertForPreTraining.from_pretrained(folder)
    assert model.load_report is not None
    assert not model.load_report.initialized
    assert not model.load_report.dropped
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), MODEL.parameters(), strict=True))


class Code:
    """An object whose pickle makes a folder when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.mkdir, (self.path,)


@pytest.mark.parametrize("archive", [True, False])
def test_code_in_a_pickle_is_refused_and_not_run(folder: Path, archive: bool) -> None:
    values = {**take_weights(folder), "extra": Code(folder / "made")}
    torch.save(values, folder / "pytorch_model.bin", _use_new_zipfile_serialization=archive)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin.*mkdir"):
        read_weights(folder)
    assert not (folder / "made").exists()


def _without_a_shard(folder: Path, weights: Weights) -> None:
    write_shards(folder, weights)
    (folder / "model-00002-of-00002.safetensors").unlink()


def _shard_lacks_a_weight(folder: Path, weights: Weights) -> None:
    write_shards(folder, weights)
    for file in folder.glob("model-*"):
        save_file({name: tensor for name, tensor in load_file(file).items() if name != FIRST}, file)


def _shard_elsewhere(folder: Path, weights: Weights) -> None:
    (folder / "deep").mkdir()
    write_safetensors(folder / "deep", weights)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "deep/model.safetensors"}}')


def _pointer_of_a_shard(folder: Path, weights: Weights) -> None:
    write_shards(folder, weights)
    (folder / "model-00001-of-00002.safetensors").write_text(POINTER)


def _cut(folder: Path, weights: Weights) -> None:
    write_bin(folder, weights)
    file = folder / "pytorch_model.bin"
    file.write_bytes(file.read_bytes()[:-100])


def _not_finite(number: float, write: Callable[[Path, Weights], None]) -> Callable[[Path, Weights], None]:
    def write_it(folder: Path, weights: Weights) -> None:
        weights[FIRST].view(-1)[-1] = number
        write(folder, weights)

    return write_it


@pytest.mark.parametrize(
    ("write", "named"),
    [
        (lambda folder, weights: None, "model.safetensors"),
        (lambda folder, weights: (folder / "tf_model.h5").touch(), "tf_model.h5"),
        (lambda folder, weights: (folder / "model.safetensors").write_text(POINTER), "git lfs pull"),
        (lambda folder, weights: (folder / "pytorch_model.bin").write_text(POINTER), "git lfs pull"),
        (lambda folder, weights: (folder / "pytorch_model.bin").touch(), "pytorch_model.bin"),
        (lambda folder, weights: (folder / "model.safetensors.index.json").touch(), "index.json has no weight_map"),
        (
            lambda folder, weights: (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}'),
            "index.json has no weight_map",
        ),
        (lambda folder, weights: write_bin(folder, {"state_dict": weights}), "state_dict"),
        (_without_a_shard, "model-00002-of-00002.safetensors"),
        (_shard_lacks_a_weight, FIRST),
        (_shard_elsewhere, "deep/model.safetensors"),
        (_pointer_of_a_shard, "git lfs pull"),
        (_cut, "pytorch_model.bin"),
        (_not_finite(math.nan, write_safetensors), FIRST),
        (_not_finite(-math.inf, write_pickled_shards), FIRST),
    ],
)
def test_weights_that_cannot_be_used_are_refused(
    folder: Path, write: Callable[[Path, Weights], object], named: str
) -> None:
    write(folder, take_weights(folder))
    with pytest.raises(CheckpointError, match=re.escape(named)) as caught:
        read_weights(folder)
    assert str(folder) in str(caught.value)


def test_weights_that_may_not_be_read_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        read_weights(folder)
