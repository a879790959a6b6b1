"""Copies of a batch to a GPU that a fake stands for: one transfer from page-locked memory, and nobody waits.

Run alone: pytest tests/bert_core/test_device_copies.py
"""

import numpy as np
import torch

from bert_core.device_copies import copy_together
from bert_core.packed_sequences import PackedSequences
from tests.synchronizations import GPU, FakeGpu


def test_tensors_of_all_types_and_shapes_arrive_in_one_transfer() -> None:
    tensors = {
        "ids": torch.arange(7),
        "mask": torch.tensor([[True, False, True]]),
        "none": torch.zeros(0, 3),
        "borders": torch.tensor([0, 3, 7], dtype=torch.int32),
        "states": torch.randn(7, 3).t(),
        "half": torch.randn(5).bfloat16(),
    }
    with FakeGpu() as gpu:
        copies = copy_together(tensors, GPU)
    assert gpu.num_transfers == 1
    assert list(copies) == list(tensors)
    for name, tensor in tensors.items():
        torch.testing.assert_close(copies[name], tensor, rtol=0, atol=0)
        assert copies[name].data_ptr() % tensor.element_size() == 0


def test_sequences_go_to_a_gpu_in_one_transfer() -> None:
    host = PackedSequences.from_numpy(np.arange(5), np.zeros(5), np.array([0, 2, 5]))
    with FakeGpu() as gpu:
        moved = host.to(GPU)
    assert gpu.num_transfers == 1
    assert moved.max_seqlen == host.max_seqlen
    assert all(torch.equal(tensor, host.tensors()[name]) for name, tensor in moved.tensors().items())


def test_on_a_cpu_the_tensors_are_the_same_memory() -> None:
    tensors = {"ids": torch.arange(3)}
    assert copy_together(tensors, torch.device("cpu"))["ids"].data_ptr() == tensors["ids"].data_ptr()
