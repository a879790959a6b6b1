"""A step's batch: counts, cuts on a device, and the feed with a fake in place of a GPU.

What a real GPU does with it: tests/gpu/test_synchronizations.py. Alone: pytest
tests/orchestrator/pretraining/test_device_batch.py
"""

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from ray.exceptions import RayError

from bert_core.examples.packing import PackedBatch
from bert_core.packed_sequences import PackedSequences
from orchestrator.base.errors import CorpusError
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.device_batch import DeviceBatch, lay_end_to_end, one_step_ahead
from orchestrator.pretraining.step import count_globally
from tests.orchestrator.pretraining.batches_on_host import on_host
from tests.orchestrator.pretraining.small_run import make_job

CPU = torch.device("cpu")


def first_batch(folder: Path, **changes: object) -> PackedBatch:
    return next(batch for _, batch in make_job(folder, **changes).stream.batches(range(1)))


def assert_equal(batch: PackedBatch, other: PackedBatch) -> None:
    for name, value in vars(batch).items():
        np.testing.assert_array_equal(getattr(other, name), value, err_msg=name)


@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sentence_objective": "none"},
        {"sentence_objective": "none", "token_objective": "left_to_right"},
        {"sentence_objective": "none", "token_objective": "replaced_tokens"},
    ],
    ids=["pairs", "single sequences", "no masks", "draws"],
)
def test_micro_batches_are_the_cuts_of_the_host_batch(tmp_path: Path, size: int, changes: dict[str, object]) -> None:
    batch = first_batch(tmp_path, **changes)
    parts = batch.split(size)
    cut = list(DeviceBatch.copied(batch, CPU).cut(parts))
    assert len(cut) == len(parts) > 0
    for micro, part in zip(cut, parts, strict=True):
        assert_equal(part, on_host(micro))
        from_host = PackedSequences.from_numpy(part.input_ids, part.token_type_ids, part.cu_seqlens)
        for name, value in vars(from_host).items():
            own = getattr(micro.sequences, name)
            assert torch.equal(own, value) if isinstance(value, torch.Tensor) else own == value, name


OBJECTIVES = ("masked_lm", "next_sentence")


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> PackedBatch:
    """The first batch of a small run."""
    return next(batch for _, batch in make_job(tmp_path_factory.mktemp("job")).stream.batches(range(1)))


def test_counts_are_those_of_the_batch(batch: PackedBatch) -> None:
    counts, num_stopping = count_globally(batch, OBJECTIVES, Worker(), wants_to_stop=True)
    assert {name: number.item() for name, number in counts.num_predictions.items()} == {
        "masked_lm": len(batch.masked_positions),
        "next_sentence": batch.num_sequences,
    }
    assert counts.num_tokens.item() == len(batch.input_ids)
    assert num_stopping.item() == 1
    tensors = [*counts.num_predictions.values(), counts.num_tokens, num_stopping]
    assert all(number.shape == () and number.dtype == torch.float32 for number in tensors)


def test_counts_of_several_workers_are_added_up_in_one_message(
    batch: PackedBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[torch.Tensor] = []

    def add_another_worker(values: torch.Tensor) -> None:
        messages.append(values)
        values += torch.tensor([10.0, 2.0, 100.0, 1.0])

    monkeypatch.setattr(torch.distributed, "all_reduce", add_another_worker)
    counts, num_stopping = count_globally(batch, OBJECTIVES, Worker(0, 2))
    assert len(messages) == 1
    assert counts.num_predictions["masked_lm"].item() == len(batch.masked_positions) + 10
    assert counts.num_tokens.item() == len(batch.input_ids) + 100
    assert num_stopping.item() == 1


WAIT_S = 600.0
"""Longest wait for the feed's thread, on a busy machine."""


def numbered(step: int) -> tuple[int, PackedBatch]:
    """A batch of one sequence of two tokens that bear the step's number."""
    ids, none, ends = np.array([step, step], np.int32), np.zeros(0, np.int32), np.array([0, 2], np.int32)
    return step, PackedBatch(ids, np.zeros(2, np.int8), ends, none, none, np.zeros(0, np.int8), none)


@dataclass
class FakeCopies:
    """A device that is the host, and tells what was sent and received, and by which thread."""

    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    senders: set[str] = field(default_factory=set)
    has_sent: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def send(self, batch: PackedBatch) -> torch.Tensor:
        self.sent.append(int(batch.input_ids[0]))
        self.senders.add(threading.current_thread().name)
        self.has_sent.release()
        return torch.from_numpy(lay_end_to_end(batch))

    def receive(self, sent: torch.Tensor) -> torch.Tensor:
        self.received.append(int(sent[0]))
        return sent


def failing_after(num_steps: int, error: Exception) -> Iterator[tuple[int, PackedBatch]]:
    yield from map(numbered, range(num_steps))
    raise error


def feed_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("device-feed")]


def test_batches_come_in_order_and_complete() -> None:
    copies = FakeCopies()
    fed = list(one_step_ahead(map(numbered, range(5, 12)), copies))
    assert [step for step, _ in fed] == copies.sent == copies.received == list(range(5, 12))
    for step, batch in fed:
        (micro,) = batch.cut([batch.host])
        assert micro.sequences.input_ids.tolist() == batch.host.input_ids.tolist() == [step, step]
    assert not feed_threads()


def test_the_next_step_is_sent_by_a_thread_and_no_more_than_that_one() -> None:
    copies = FakeCopies()
    with closing(one_step_ahead(map(numbered, range(9)), copies)) as fed:
        for done, (step, _) in enumerate(fed):
            for _ in range(2 if done == 0 else 1):
                if step < 8:
                    assert copies.has_sent.acquire(timeout=WAIT_S)
            assert copies.sent == list(range(min(step + 2, 9))), "while a step is in work, the next one is sent"
            assert copies.received == list(range(step + 1))
    assert all(name.startswith("device-feed") for name in copies.senders)


@pytest.mark.parametrize("error", [CorpusError("shard-1.parquet is damaged"), RayError("the object is lost")])
def test_an_error_comes_as_it_is_after_the_batches_before_it(error: Exception) -> None:
    fed = one_step_ahead(failing_after(3, error), FakeCopies())
    assert [next(fed)[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(type(error)) as raised:
        next(fed)
    assert raised.value is error
    assert not feed_threads()


def test_leaving_early_ends_the_thread_and_its_source() -> None:
    ended: list[str] = []

    def batches() -> Iterator[tuple[int, PackedBatch]]:
        try:
            yield from map(numbered, range(100))
        finally:
            ended.append("source")

    copies = FakeCopies()
    with closing(one_step_ahead(batches(), copies)) as fed:
        next(fed)
    assert not feed_threads()
    assert ended == ["source"]
    assert len(copies.sent) <= 2
