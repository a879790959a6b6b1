"""Files of checkpoints: whole or not at all, named by their digests, and the names of weights in them.

Alone: pytest tests/bert_core/checkpoints/test_files.py
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bert_core.checkpoints.manifest import atomic_folder, atomic_write, write_json
from bert_core.checkpoints.pretrained import WeightNames
from bert_core.checkpoints.tensor_files import save_tensors
from bert_core.config import BertConfig
from bert_core.families import FAMILIES, NATIVE
from bert_core.heads import BertForMultipleChoice, BertForPreTraining, BertForTokenClassification
from bert_core.model import BertModel
from tests.bert_core.reference import small_config


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
    weights = model.weight_names.normalized(model.weight_names.to_file(state), state)
    for name, tensor in state.items():
        assert torch.equal(model.weight_names.from_file(name, weights), tensor), name


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


def test_renamed_parameters_keep_their_names_in_files() -> None:
    config = small_config(model_type="bert_core", layer_pooling="scalar_mix", choice_projection=True)
    model = BertForMultipleChoice.from_config(config)
    names = {model.weight_names.of(name)[0] for name, _ in model.named_parameters()}
    assert names >= {"bert.head_input.weights", "bert.head_input.scale", "summary.weight", "summary.bias"}
    assert NATIVE.file_names("bert.layer_pooling.scale", "BertForMultipleChoice") == ("bert.head_input.scale",)


def test_weights_of_an_lstm_keep_their_names_in_files() -> None:
    config = small_config(model_type="bert_core", num_lstm_layers=1, lstm_hidden_size=8)
    model = BertForTokenClassification.from_config(config)
    assert model.lstm is not None
    names = {model.weight_names.of(f"lstm.{name}")[0] for name, _ in model.lstm.named_parameters()}
    assert names == {f"recurrent.{name}" for name, _ in model.lstm.named_parameters()}


def test_a_folder_that_cannot_be_written_is_named_and_no_temporary_file(tmp_path: Path) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with pytest.raises(PermissionError) as caught:
        atomic_write(tmp_path / "spec.yaml", refuse)
    assert caught.value.filename == str(tmp_path)
    with pytest.raises(PermissionError) as caught, atomic_folder(tmp_path / "model") as folder:
        refuse(folder)
    assert caught.value.filename == str(tmp_path)
