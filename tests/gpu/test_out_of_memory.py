"""Halves of a batch after its whole did not fit into memory. Run alone: pytest tests/gpu/test_out_of_memory.py

The loop of a training run that does so is tested in tests/orchestrator/pretraining/test_micro_batches.py, on the CPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks._pretraining_batches import OBJECTIVES
from benchmarks.gpu.own_step import build_learner, packed_inputs
from benchmarks.gpu.texts import first_batches, generated_text
from bert_core.examples.packing import PackedBatch
from bert_core.heads.pretraining import BertForPreTraining
from bert_core.packed_sequences import PackedSequences
from tests.gpu.devices import ON_EACH_DEVICE, small_setting


def gradient(model: BertForPreTraining, parts: list[PackedBatch], device: torch.device) -> Tensor:
    """Gradient of the summed losses of all parts, as one vector."""
    for part in parts:
        sums = model.packed_loss_sums(*packed_inputs(part, device), OBJECTIVES)
        torch.stack([each.loss for each in sums.values()]).sum().backward()
    found = torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])
    model.zero_grad(set_to_none=True)
    return found


@contextmanager
def little_memory(device: torch.device, num_bytes: int, num_tokens: int) -> Iterator[None]:
    """Let a card give out so many bytes more; the CPU, in place of that, take so many tokens at a time."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved(device) + num_bytes) / total)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        return
    original = BertForPreTraining.packed_loss_sums

    def packed_loss_sums(model: BertForPreTraining, seqs: PackedSequences, *others: Any) -> Any:
        if seqs.num_tokens > num_tokens:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        return original(model, seqs, *others)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BertForPreTraining, "packed_loss_sums", packed_loss_sums)
        yield


@ON_EACH_DEVICE
def test_halves_have_the_gradient_of_the_whole_that_did_not_fit(device: str) -> None:
    setting = small_setting(device)
    text = generated_text(100, 50)
    (batch,) = first_batches(text, 1, 32 if device == "cpu" else 512, 32, seed=1)
    config = setting.build_config("small", vocab_size=text.vocab_size).with_dropout(0.0)
    model = build_learner(config, setting.device).model
    whole = gradient(model, [batch], setting.device)
    num_tokens = len(batch.input_ids)
    inner_bytes = 4 * num_tokens * config.intermediate_size  # two layers keep more than ten times as much
    size, num_failures = batch.num_sequences, 0
    with little_memory(setting.device, 5 * inner_bytes, num_tokens // 3):
        while True:
            try:
                parts = gradient(model, batch.split(size), setting.device)
                break
            except torch.OutOfMemoryError:
                size, num_failures = size // 2, num_failures + 1
            model.zero_grad(set_to_none=True)  # outside of `except`, which holds on to the failed forward's tensors
    assert num_failures >= 1
    assert float((parts - whole).norm() / whole.norm()) < 1e-5
