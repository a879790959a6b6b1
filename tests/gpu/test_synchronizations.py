"""Steps on a GPU: between two logged ones the host waits for nothing, and the feed's copies arrive whole. Alone:
pytest tests/gpu/test_synchronizations.py

PyTorch itself raises at an operation that waits (`torch.cuda.set_sync_debug_mode`). The same without a GPU:
tests/orchestrator/pretraining/test_synchronizations.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.device_batch import device_batches
from orchestrator.pretraining.loop import TrainingLoop
from orchestrator.pretraining.meter import Meter
from orchestrator.pretraining.step import training_step
from tests.orchestrator.pretraining.batches_on_host import on_host
from tests.orchestrator.pretraining.small_run import make_job

pytestmark = [
    pytest.mark.training,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU: this torch sees no CUDA device"),
]

MODEL = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
WITHOUT_DROPOUT = MODEL | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
RUNS: dict[str, dict[str, object]] = {
    "masked_lm and next_sentence": {"model": MODEL},
    "variable-length attention": {"model": WITHOUT_DROPOUT, "precision": "bf16"},
    "padded attention in bf16": {"model": MODEL, "precision": "bf16"},
    "micro-batches": {"model": MODEL, "micro_batch_size": 3},
    "span boundary": {
        "mask_unit": "span",
        "sentence_objective": "none",
        "model": MODEL | {"span_boundary_objective": True},
    },
    "left_to_right": {"token_objective": "left_to_right", "sentence_objective": "none", "model": MODEL},
    "replaced_tokens": {"token_objective": "replaced_tokens", "sentence_objective": "none", "model": MODEL},
}


@pytest.fixture
def refusing_to_wait() -> Iterator[None]:
    """PyTorch's mode, switched on by the test; it is off again afterwards."""
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.usefixtures("refusing_to_wait")
@pytest.mark.parametrize("name", RUNS)
def test_nothing_waits_between_two_logged_steps(tmp_path: Path, name: str) -> None:
    worker = Worker(device=torch.device("cuda", torch.cuda.current_device()))
    job = make_job(tmp_path, **RUNS[name])
    loop = TrainingLoop(job, worker, lambda event: None)
    loop.model.train()
    meter = Meter(worker, loop.context.objectives)
    for step, batch in meter.waiting(device_batches(job.stream.batches(range(12)), worker.device)):
        if step == 2:  # what is made once is made: the optimizer's state, the libraries' handles
            torch.cuda.set_sync_debug_mode("error")
        result = training_step(loop.context, step, batch, learning_rate=1e-3)
        meter.add(step + 1, result.totals, result.gradient_norm)
    torch.cuda.set_sync_debug_mode("default")
    meter.look()
    values = meter.read()
    assert 0.0 < values["loss"] < 20.0
    assert 0.0 <= values["data_wait_share"] <= 1.0


def test_batches_on_the_device_are_those_of_the_host(tmp_path: Path) -> None:
    """Also while the device has much work in line, so that a copy that is read too early would be seen."""
    device = torch.device("cuda", torch.cuda.current_device())
    batches = list(make_job(tmp_path).stream.batches(range(24)))
    busy = torch.randn(2048, 2048, device=device)
    found = []
    for _, batch in device_batches(iter(batches), device):
        for _ in range(20):
            busy = busy @ busy / 2048
        found.append([micro.labels.masked_positions.clone() for micro in batch.cut(batch.host.split(3))])
        found[-1] += [micro.sequences.input_ids.clone() for micro in batch.cut(batch.host.split(8))]
    for (_, batch), tensors in zip(batches, found, strict=True):
        expected = [part.masked_positions for part in batch.split(3)] + [part.input_ids for part in batch.split(8)]
        assert [tensor.cpu().tolist() for tensor in tensors] == [array.tolist() for array in expected]


def test_a_batch_comes_back_from_the_device_whole(tmp_path: Path) -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    ((_, batch),) = make_job(tmp_path).stream.batches(range(1))
    ((_, copied),) = device_batches(iter([(0, batch)]), device)
    (micro,) = copied.cut([batch])
    assert micro.sequences.input_ids.device == device
    back = on_host(micro)
    assert all((getattr(back, name) == value).all() for name, value in vars(batch).items())
