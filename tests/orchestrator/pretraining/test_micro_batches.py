"""Memory that runs out in a step: smaller micro-batches at the same global batch. A fake stands for the device.

Run alone: pytest tests/orchestrator/pretraining/test_micro_batches.py
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bert_core.examples.packing import PackedBatch
from bert_core.heads import BertForPreTraining
from orchestrator.base.errors import RunFailedError
from orchestrator.base.results import CheckpointEvent, Event, MessageEvent, MetricEvent
from orchestrator.pretraining import step as step_module
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.device_batch import MicroBatch
from orchestrator.pretraining.job import PretrainJob
from orchestrator.pretraining.loop import TrainingLoop
from orchestrator.pretraining.step import GlobalCounts, MicroBatches, Sums, label_loss, pretraining_sums
from orchestrator.specs import PretrainSpec
from orchestrator.storage import digest_file
from orchestrator.training.checkpoints import Checkpoints
from tests.orchestrator.pretraining.small_run import make_job, run

training = pytest.mark.training

SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
NO_DROPOUT = SMALL | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@dataclass(frozen=True)
class SmallDevice:
    """The loss of the labels on a device whose memory holds the activations of so many examples."""

    room: int

    def __call__(
        self, model: BertForPreTraining, micro: MicroBatch, spec: PretrainSpec, counts: GlobalCounts
    ) -> tuple[Sums, torch.Tensor]:
        if micro.sequences.num_sequences > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.\nGPU 0 has 79 GiB.")
        return label_loss(model, micro, spec, counts)


def small_device_job(folder: Path, room: int, **changes: object) -> PretrainJob:
    return replace(make_job(folder, **changes), loss=SmallDevice(room))


def losses(events: list[Event]) -> list[float]:
    return [event.values["loss"] for event in events if isinstance(event, MetricEvent)]


@training
def test_running_out_of_memory_changes_no_loss(tmp_path: Path) -> None:
    whole: list[Event] = []
    run(make_job(tmp_path / "whole", model=NO_DROPOUT), whole.append)
    halved: list[Event] = []
    run(small_device_job(tmp_path / "halved", 3, model=NO_DROPOUT), halved.append)
    assert losses(halved) == pytest.approx(losses(whole), rel=1e-6)
    warnings = [e.text for e in halved if isinstance(e, MessageEvent) and e.level == "warning"]
    assert len(warnings) == 2
    assert "micro_batch_size 2" in warnings[1]


@training
def test_the_size_that_fits_is_part_of_a_checkpoint(tmp_path: Path) -> None:
    """Dropout is drawn for each micro-batch: another size would end at other bits."""
    run(small_device_job(tmp_path / "straight", 3), lambda event: None)
    job = small_device_job(tmp_path / "resumed", 3)

    def stop(event: Event) -> None:
        if isinstance(event, CheckpointEvent) and event.step == 10:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        run(job, stop)
    events: list[Event] = []
    run(replace(job, attempt=2), events.append)
    assert not [event for event in events if isinstance(event, MessageEvent) and event.level == "warning"]
    weights = [Checkpoints(str(tmp_path / name / "run")).newest_first()[0].path for name in ("straight", "resumed")]
    assert digest_file(f"{weights[0]}/model.safetensors") == digest_file(f"{weights[1]}/model.safetensors")
    assert json.loads((Path(weights[1]) / "state.json").read_bytes())["extra"]["micro_batch_size"] == 2


@training
def test_one_example_that_does_not_fit_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match=r"phases\.max_seq_length"):
        run(small_device_job(tmp_path, 0), lambda event: None)


def test_workers_take_the_smallest_size_of_any(monkeypatch: pytest.MonkeyPatch) -> None:
    def reduce_with_a_halved_one(values: torch.Tensor, op: object) -> None:
        values.copy_(torch.minimum(values, torch.tensor(4)))

    monkeypatch.setattr(torch.distributed, "all_reduce", reduce_with_a_halved_one)
    warnings: list[str] = []
    for size, agreed in ((None, 4), (8, 4), (4, 4), (2, 2)):
        micro_batches = MicroBatches(Worker(0, 2), a_spec(micro_batch_size=size), warnings.append)
        micro_batches.take_smallest_of_all_workers()
        assert micro_batches.size == agreed
    assert len(warnings) == 2
    alone = MicroBatches(Worker(), a_spec(), warnings.append)
    alone.take_smallest_of_all_workers()
    assert alone.size is None


def a_spec(**changes: object) -> PretrainSpec:
    values = {"corpus": {"files": ["a.txt"]}, "tokenizer": "t", "steps": 1, "phases": [{"max_seq_length": 8}]}
    return PretrainSpec.model_validate(values | changes)


def batch_of(*lengths: int) -> PackedBatch:
    """Sequences of these lengths, in which nothing is predicted."""
    ends = np.cumsum([0, *lengths], dtype=np.int32)
    none = np.zeros(0, np.int32)
    tokens = np.arange(ends[-1], dtype=np.int32)
    return PackedBatch(tokens, np.zeros(len(tokens), np.int8), ends, none, none, np.zeros(0, np.int8), none)


def lengths(parts: list[PackedBatch]) -> list[list[int]]:
    return [np.diff(part.cu_seqlens).tolist() for part in parts]


def test_micro_batches_by_tokens_hold_as_many_examples_as_fit() -> None:
    micro_batches = MicroBatches(Worker(), a_spec(micro_batch_tokens=8), lambda warning: None)
    assert lengths(micro_batches.split(batch_of(8, 3, 5, 4, 4, 1, 7))) == [[8], [3, 5], [4, 4], [1, 7]]
    assert lengths(micro_batches.split(batch_of(2))) == [[2]]


def test_memory_that_runs_out_halves_tokens_until_one_example_is_alone() -> None:
    warnings: list[str] = []
    micro_batches = MicroBatches(Worker(), a_spec(micro_batch_tokens=16), warnings.append)
    batch = batch_of(6, 2, 2, 2)
    micro_batches.halve(micro_batches.split(batch), 3, "no room")
    assert "at step 3 with 12 tokens at a time (no room); from here on 6 at a time" in warnings[0]
    assert "micro_batch_tokens 6 does so from the start" in warnings[0]
    assert lengths(micro_batches.split(batch)) == [[6], [2, 2, 2]]
    micro_batches.halve(micro_batches.split(batch), 3, "no room")
    assert lengths(micro_batches.split(batch)) == [[6], [2], [2], [2]]
    with pytest.raises(RunFailedError, match="with one example at a time"):
        micro_batches.halve(micro_batches.split(batch), 3, "no room")


def test_the_size_by_tokens_is_part_of_a_checkpoint() -> None:
    spec = a_spec(micro_batch_tokens=64)
    halved = MicroBatches(Worker(), spec, lambda warning: None)
    halved.halve([batch_of(30, 30)], 1, "no room")
    resumed = MicroBatches(Worker(), spec, lambda warning: None)
    resumed.restore(halved.state())
    assert resumed.size == 30
    resumed.restore({})
    assert resumed.size == 64


@training
def test_memory_that_runs_out_in_an_evaluation_changes_no_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def with_room_for_19(model: BertForPreTraining, micro: MicroBatch, *rest: Any) -> Sums:
        sizes.append(micro.sequences.num_sequences)
        if sizes[-1] > 19:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return pretraining_sums(model, micro, *rest)

    events: list[Event] = []
    loop = TrainingLoop(make_job(tmp_path), Worker(), events.append)
    whole = loop.evaluate(3)
    monkeypatch.setattr(step_module, "pretraining_sums", with_room_for_19)
    assert loop.evaluate(3) == pytest.approx(whole, rel=1e-6)
    assert loop.micro_batches.size is None, "a step's dropout is as it was"
    warnings = [event.text for event in events if isinstance(event, MessageEvent)]
    assert len(warnings) == 2
