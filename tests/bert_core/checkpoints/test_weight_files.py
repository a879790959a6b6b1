"""Weights as other tools leave them: in several files, of torch.save under a wrapper's names; and refused; files whole.

Run alone: pytest tests/bert_core/checkpoints/test_weight_files.py
"""

import errno
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bert_core.checkpoints.manifest import atomic_folder, atomic_write, write_json
from bert_core.checkpoints.pretrained import WeightNames, read_weights
from bert_core.checkpoints.tensor_files import save_tensors
from bert_core.config import BertConfig
from bert_core.errors import CheckpointError
from bert_core.families import FAMILIES
from bert_core.heads import BertForPreTraining
from bert_core.model import BertModel
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


def test_broken_off_write_leaves_the_older_file_and_nothing_else(tmp_path: Path) -> None:
    write_json(tmp_path / "file", 1)

    def write(path: Path) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        atomic_write(tmp_path / "file", write)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "1\n")]


def test_folder_takes_the_place_of_the_older_one(tmp_path: Path) -> None:
    for number in (1, 2):
        with atomic_folder(tmp_path / "models" / "best") as folder:
            (folder / f"file-{number}").write_text("whole")
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["best"]
    assert [path.name for path in (tmp_path / "models" / "best").iterdir()] == ["file-2"]


def test_broken_off_folder_leaves_the_older_one_and_nothing_else(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "best") as folder:
        (folder / "file").write_text("older")
    with pytest.raises(FileNotFoundError), atomic_folder(tmp_path / "best") as folder:
        (folder / "no folder" / "file").write_text("newer")
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert (tmp_path / "best" / "file").read_text() == "older"


@pytest.fixture(params=[0o022, 0o077, 0o002])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_those_read_a_file_whom_the_umask_allows(umask: int, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors({"a": torch.arange(3)}, path, {"format": "pt"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    assert load_file(path)["a"].tolist() == [0, 1, 2]


NAMES = BertForPreTraining.from_config(small_config()).weight_names


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_survives_the_way_to_a_file_and_back(family: str) -> None:
    model = BertForPreTraining.from_config(BertConfig.from_size("tiny", family, vocab_size=11))
    state = model.state_dict()
    names = model.weight_names
    weights = names.normalized(names.to_file(state), state)
    for name, tensor in state.items():
        parts = [weights[part] for part in names.of(name)]
        assert torch.equal(names.join(name, parts), tensor), name


def test_query_key_and_value_are_split_by_rows() -> None:
    names = WeightNames(FAMILIES["bert"], "BertModel", is_encoder_alone=True)
    weights = names.to_file({"layers.0.qkv.weight": torch.arange(12.0).view(6, 2)})
    assert weights["encoder.layer.0.attention.self.key.weight"].tolist() == [[4.0, 5.0], [6.0, 7.0]]


def test_an_encoder_alone_is_written_without_the_prefix_and_found_with_and_without() -> None:
    model = BertModel.from_config(small_config())
    weights = model.weight_names.to_file(model.state_dict())
    assert "pooler.dense.bias" in weights
    with_prefix = {f"bert.{name}": tensor for name, tensor in weights.items()}
    for found in (weights, with_prefix):
        assert model.weight_names.normalized(found, model.state_dict()).keys() == with_prefix.keys()


def test_decoder_s_bias_stands_in_for_a_missing_one() -> None:
    file = {"cls.predictions.decoder.bias": torch.ones(1), "bert.embeddings.position_ids": torch.ones(1)}
    assert list(NAMES.normalized(file, ["prediction.bias"])) == ["cls.predictions.bias"]


def test_a_folder_that_cannot_be_written_is_named_and_no_temporary_file(tmp_path: Path) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with pytest.raises(PermissionError) as caught:
        atomic_write(tmp_path / "spec.yaml", refuse)
    assert caught.value.filename == str(tmp_path)
    with pytest.raises(PermissionError) as caught, atomic_folder(tmp_path / "model") as folder:
        refuse(folder)
    assert caught.value.filename == str(tmp_path)


@pytest.mark.parametrize("change", [{"prefix": "model."}, {"model_type": "distilbert"}])
def test_weights_that_are_not_those_of_config_json_are_refused_without_a_model(
    folder: Path, change: dict[str, str]
) -> None:
    MODEL.save_pretrained(folder)
    (folder / "manifest.json").unlink()
    assert next(BertModel.from_pretrained(folder, seed=None).parameters()).is_meta
    if "prefix" in change:
        weights = load_file(folder / "model.safetensors")
        save_file({change["prefix"] + name: weight for name, weight in weights.items()}, folder / "model.safetensors")
    else:
        BertModel.from_config(BertConfig.from_size("tiny", "distilbert", vocab_size=100)).save_pretrained(
            folder / "new"
        )
        (folder / "new" / "config.json").replace(folder / "config.json")
    with pytest.raises(CheckpointError, match=f"begins with {change.get('prefix', 'bert.')}"):
        BertModel.from_pretrained(folder, seed=None)
