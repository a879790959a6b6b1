"""Memory that runs out in a step: smaller micro-batches at the same global batch. A fake stands for the device.

Run alone: pytest tests/orchestrator/pretraining/test_micro_batches.py
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from bert_core.heads import BertForPreTraining
from orchestrator.errors import RunFailedError
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.device_batch import MicroBatch
from orchestrator.pretraining.job import PretrainJob
from orchestrator.pretraining.loss import GlobalCounts, Sums, label_loss
from orchestrator.pretraining.micro_batches import MicroBatches
from orchestrator.results import CheckpointEvent, Event, MessageEvent, MetricEvent
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
    assert warnings[0].startswith(
        "memory ran out at step 1 with 8 examples at a time (CUDA out of memory. Tried to allocate 20.00 MiB.); from "
        "here on 4 at a time, at the same global batch"
    )
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
    with pytest.raises(RunFailedError, match=r"memory ran out at step 1 with one example .*lower phases\.max_seq_leng"):
        run(small_device_job(tmp_path, 0), lambda event: None)


def test_workers_take_the_smallest_size_of_any(monkeypatch: pytest.MonkeyPatch) -> None:
    def reduce_with_a_halved_one(values: torch.Tensor, op: object) -> None:
        values.copy_(torch.minimum(values, torch.tensor(4)))

    monkeypatch.setattr(torch.distributed, "all_reduce", reduce_with_a_halved_one)
    warnings: list[str] = []
    for size, agreed in ((None, 4), (8, 4), (4, 4), (2, 2)):
        micro_batches = MicroBatches(Worker(0, 2), size, warnings.append)
        micro_batches.agree()
        assert micro_batches.size == agreed
    assert len(warnings) == 2
    assert "memory ran out on another worker; from here on 4 at a time" in warnings[0]
    alone = MicroBatches(Worker(), None, warnings.append)
    alone.agree()
    assert alone.size is None
