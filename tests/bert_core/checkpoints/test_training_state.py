"""Stopping and going on, bit for bit; damaged states; copies in the host's memory of a GPU that a fake stands for.

Run alone: pytest tests/bert_core/checkpoints/test_training_state.py
"""

import hashlib
import json
import logging
import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import Optimizer

from bert_core.checkpoints.manifest import write_manifest
from bert_core.checkpoints.training_state import load_training_state, save_training_state
from bert_core.device_copies import HostCopies
from bert_core.errors import CheckpointError, NewerFormatError
from bert_core.heads import BertForPreTraining
from bert_core.learning_rates import learning_rate_factor
from bert_core.optimization import OPTIMIZERS, build_optimizer
from tests.bert_core.reference import ragged_batch, small_config

CONFIG = small_config().with_dropout(0.1)
FILES = ("model.safetensors", "optimizer.safetensors", "state.json")


def fresh(seed: int = 0, vocab_size: int = 53, **settings: Any) -> tuple[BertForPreTraining, Optimizer]:
    config = small_config(vocab_size=vocab_size).with_dropout(0.1)
    model = BertForPreTraining.from_config(config, seed).train()
    return model, build_optimizer(model, learning_rate=1e-2, **settings)


def train(model: BertForPreTraining, optimizer: Optimizer, first: int, last: int) -> None:
    for step in range(first, last):
        torch.manual_seed(step)
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * learning_rate_factor(step, 20, 4)
        batch = ragged_batch(CONFIG, [5, 3, 8], 8, seed=step)
        labels = torch.where(batch["input_ids"] % 3 == 1, batch["input_ids"], -100)
        loss = model(**batch, labels=labels, next_sentence_label=torch.tensor([0, 1, 0])).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def digest(model: BertForPreTraining, optimizer: Optimizer) -> str:
    """What a state with these weights and moments is called."""
    with tempfile.TemporaryDirectory() as folder:
        return save_training_state(Path(folder) / "state", model, optimizer, {})


def go_on(folder: str, answers: "multiprocessing.SimpleQueue[tuple[str, int]]") -> None:
    """The second half, in a process of its own."""
    torch.set_num_threads(1)
    model, optimizer = fresh(seed=7)
    step = load_training_state(Path(folder), model, optimizer)["step"]
    train(model, optimizer, step, 20)
    answers.put((digest(model, optimizer), step))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The state after three steps."""
    model, optimizer = fresh()
    train(model, optimizer, 0, 3)
    save_training_state(tmp_path / "step-3", model, optimizer, {"step": 3})
    return tmp_path / "step-3"


@pytest.mark.training
@pytest.mark.core
def test_ten_steps_and_ten_in_a_new_process_equal_twenty(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        straight = fresh()
        train(*straight, 0, 20)
        halved = fresh()
        train(*halved, 0, 10)
    finally:
        torch.set_num_threads(threads)
    save_training_state(tmp_path / "state", *halved, {"step": 10})
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    process = context.Process(target=go_on, args=(str(tmp_path / "state"), answers))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert answers.get() == (digest(*straight), 10)


@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_goes_on_to_the_same_bits(tmp_path: Path, name: str, bias_correction: bool) -> None:
    straight, halved, resumed = (fresh(seed, optimizer=name, bias_correction=bias_correction) for seed in (0, 0, 7))
    train(*straight, 0, 6)
    train(*halved, 0, 3)
    save_training_state(tmp_path / "state", *halved, {})
    load_training_state(tmp_path / "state", *resumed)
    train(*resumed, 3, 6)
    assert digest(*resumed) == digest(*straight)


def test_state_comes_back_whole(folder: Path) -> None:
    saved = fresh()
    train(*saved, 0, 3)
    loaded = fresh(seed=5)
    assert load_training_state(folder, *loaded) == {"step": 3}
    assert digest(*loaded) == digest(*saved)
    assert loaded[1].param_groups[0]["lr"] == saved[1].param_groups[0]["lr"]
    assert loaded[1].param_groups[0]["betas"] == (0.9, 0.999)


def test_state_before_the_first_step_can_be_saved(tmp_path: Path) -> None:
    save_training_state(tmp_path / "state", *fresh(), {"rates": [0.1, 1e-17], "name": "é"})
    assert load_training_state(tmp_path / "state", *fresh(1)) == {"rates": [0.1, 1e-17], "name": "é"}


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux lists a process's mapped files")
def test_loaded_state_holds_no_file_open(folder: Path) -> None:
    """A mapped file that is deleted leaves its bytes on the disk, and on NFS a folder that cannot be deleted."""
    model, optimizer = fresh()
    load_training_state(folder, model, optimizer)
    assert str(folder) not in Path("/proc/self/maps").read_text()
    assert digest(model, optimizer)  # model and optimizer are still there


def test_digest_names_the_state(folder: Path, tmp_path: Path) -> None:
    model, optimizer = fresh()
    load_training_state(folder, model, optimizer)
    same = save_training_state(tmp_path / "same", model, optimizer, {"step": 3})
    other = save_training_state(tmp_path / "other", model, optimizer, {"step": 4})
    assert same == hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest() != other


@pytest.mark.parametrize("failing", ["fsync", "rename"])
def test_failed_save_keeps_the_older_state(folder: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """Every call that can fail fails once, until a save passes."""
    real_fsync, real_rename = os.fsync, Path.rename
    source, target = fresh(), fresh()
    for failing_call in range(1, 100):
        calls = 0

        def fail_in_turn(turn: int = failing_call) -> None:
            nonlocal calls
            calls += 1
            if calls == turn:
                raise OSError(5, "Input/output error")

        def fsync(descriptor: int) -> None:
            if failing == "fsync":
                fail_in_turn()
            real_fsync(descriptor)

        def rename(path: Path, target: Path) -> Path:
            if failing == "rename":
                fail_in_turn()
            return real_rename(path, target)

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fsync)
            patched.setattr(Path, "rename", rename)
            try:
                save_training_state(folder, *source, {"step": 4})
            except OSError:
                assert load_training_state(folder, *target) in ({"step": 3}, {"step": 4})
                assert [path.name for path in folder.parent.iterdir()] == ["step-3"]
                continue
        break
    assert failing_call > 2
    assert load_training_state(folder, *fresh()) == {"step": 4}


@pytest.mark.parametrize("name", FILES)
def test_flipped_bit_is_found(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 16
    (folder / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=name):
        load_training_state(folder, *fresh())


@pytest.mark.parametrize("name", FILES)
def test_file_cut_at_any_length_is_found(folder: Path, name: str) -> None:
    data = (folder / name).read_bytes()
    target = fresh()
    for length in {0, 1, 8, len(data) // 2, len(data) - 1}:
        (folder / name).write_bytes(data[:length])
        with pytest.raises(CheckpointError, match=name):
            load_training_state(folder, *target)
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=name):
        load_training_state(folder, *target)


def test_manifest_cut_at_any_length_is_found(folder: Path) -> None:
    path = folder / "manifest.json"
    data = path.read_bytes().rstrip()
    target = fresh()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(CheckpointError, match=r"manifest\.json"):
            load_training_state(folder, *target)


def test_damaged_state_leaves_the_model_alone(folder: Path) -> None:
    model, optimizer = fresh(seed=4)
    before = digest(model, optimizer)
    (folder / "state.json").write_bytes(b"{}")
    with pytest.raises(CheckpointError):
        load_training_state(folder, model, optimizer)
    assert digest(model, optimizer) == before


def test_state_of_another_model_is_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"bert\.embeddings\.word\.weight"):
        load_training_state(folder, *fresh(vocab_size=60))
    model = BertForPreTraining.from_config(small_config(num_hidden_layers=1))
    with pytest.raises(CheckpointError, match=r"state\.json"):
        load_training_state(folder, model, build_optimizer(model, 1e-2))


@pytest.mark.parametrize("name", ["state.json", "manifest.json"])
def test_a_state_of_a_newer_version_is_refused(folder: Path, name: str) -> None:
    values = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(values | {"format": 2}))
    if name == "state.json":
        write_manifest(folder, FILES)
    with pytest.raises(NewerFormatError, match=name):
        load_training_state(folder, *fresh())


def test_nothing_but_json_and_safetensors_is_written(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", *FILES]
    assert json.loads((folder / "state.json").read_bytes())["extra"] == {"step": 3}


class TensorOnGpu(torch.Tensor):
    """A tensor that says it is on a GPU of this number."""

    number: int

    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    device = property(lambda self: torch.device("cuda", self.number))  # type: ignore[assignment]

    def detach(self) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)  # type: ignore[arg-type]


def on_gpu(number: int, *values: float) -> torch.Tensor:
    tensor = torch.tensor(values).as_subclass(TensorOnGpu)
    tensor.number = number
    return tensor


def test_copies_stay_while_the_tensors_change_and_are_overwritten_by_the_next() -> None:
    copies, weight = HostCopies(), torch.tensor([1.0, 2.0])
    copy = copies.of({"weight": weight})["weight"]
    weight += 1
    assert copy.tolist() == [1.0, 2.0]
    assert copies.of({"weight": weight})["weight"] is copy
    assert copy.tolist() == [2.0, 3.0]
    assert copies.of({"weight": torch.ones(3)})["weight"].tolist() == [1.0, 1.0, 1.0]


def test_the_gpus_of_the_tensors_are_waited_for_and_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without page-locked memory too, and that is told once."""
    empty, asked, waited_for = torch.empty, [], []
    monkeypatch.setattr(torch.cuda, "synchronize", waited_for.append)

    def without_page_locks(*arguments: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        asked.append(pin_memory)
        if pin_memory:
            raise RuntimeError("CUDA error: out of memory")
        return empty(*arguments, **options)

    monkeypatch.setattr(torch, "empty", without_page_locks)
    copies = HostCopies()
    tensors = {"a": on_gpu(1, 1.0), "b": on_gpu(1, 2.0), "c": torch.tensor([3.0])}
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            copied = copies.of(tensors)
    assert {name: copy.item() for name, copy in copied.items()} == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert waited_for == [torch.device("cuda", 1)] * 2
    assert asked == [True, False, False, False]
    assert len(caplog.records) == 1
