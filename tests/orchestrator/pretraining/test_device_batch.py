"""A step's batch: counts, and cuts on a device. Alone: pytest tests/orchestrator/pretraining/test_device_batch.py"""

from pathlib import Path

import numpy as np
import pytest
import torch

from bert_core.examples.packing import PackedBatch
from bert_core.packed_sequences import PackedSequences
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.device_batch import DeviceBatch
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
    [{}, {"sentence_objective": "none"}, {"sentence_objective": "none", "token_objective": "left_to_right"}],
    ids=["pairs", "single sequences", "no masks"],
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
