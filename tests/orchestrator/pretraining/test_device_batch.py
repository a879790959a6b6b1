"""Batches on a device, cut into micro-batches. Alone: pytest tests/orchestrator/pretraining/test_device_batch.py"""

from pathlib import Path

import numpy as np
import pytest
import torch

from bert_core.examples.packing import PackedBatch
from bert_core.packed_sequences import PackedSequences
from orchestrator.pretraining.device_batch import DeviceBatch
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
