"""Gradients of several workers, sent bucket by bucket. A fake stands for the other worker.

Run alone: pytest tests/orchestrator/pretraining/test_gradient_buckets.py
"""

import signal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from orchestrator.pretraining.collectives import GradientBuckets, Worker
from orchestrator.training.checkpoints import Checkpoints
from tests.orchestrator.pretraining.several_workers import run_group
from tests.orchestrator.pretraining.small_run import final_digests

SMALL_BUCKET_BYTES = 4 * 12
WIDTH = 3


class Network(nn.Module):
    """Two layers that are used, 12 numbers each, and a head that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.unused = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def loss(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x))).square().sum()


class Twin:
    """Another worker with the same gradients, and a list of what was sent to it."""

    def __init__(self, also_has: tuple[int, ...] = ()) -> None:
        self.sent: list[Tensor] = []
        self._also_has = also_has

    def all_reduce(self, values: Tensor, op: Any = None, async_op: bool = False) -> Any:
        if op is not None:  # which parameters have a gradient
            values[list(self._also_has)] = 1
            return None
        self.sent.append(values.clone())
        values *= 2
        return SimpleNamespace(wait=lambda: None)


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> Twin:
    twin = Twin()
    monkeypatch.setattr(torch.distributed, "all_reduce", twin.all_reduce)
    return twin


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    return Network()


def examples(seed: int) -> Tensor:
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(seed))


def gradients(network: Network) -> list[Tensor | None]:
    return [None if parameter.grad is None else parameter.grad.clone() for parameter in network.parameters()]


def gradients_alone(network: Network, seeds: tuple[int, ...]) -> list[Tensor | None]:
    network.zero_grad()
    for seed in seeds:
        network.loss(examples(seed)).backward()
    found = gradients(network)
    network.zero_grad()
    return found


def step(network: Network, buckets: GradientBuckets, *seeds: int) -> None:
    """Gradients of a step whose micro-batches are drawn from the seeds."""
    network.zero_grad()
    for seed in seeds:
        buckets.backward(network.loss(examples(seed)), is_last=seed == seeds[-1])
    buckets.finish()


def equal(found: list[Tensor | None], expected: list[Tensor | None], factor: float = 2.0) -> bool:
    return all(
        (a is None and b is None) or (a is not None and b is not None and torch.equal(a, factor * b))
        for a, b in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("bucket_bytes", [4, SMALL_BUCKET_BYTES, 1 << 20])
def test_gradients_of_all_workers_are_added_up_and_an_unused_head_keeps_none(
    network: Network, twin: Twin, bucket_bytes: int
) -> None:
    buckets = GradientBuckets(network.parameters(), Worker(0, 2), bucket_bytes=bucket_bytes)
    for seeds in ((1,), (2, 3), (4,)):
        alone = gradients_alone(network, seeds)
        step(network, buckets, *seeds)
        assert equal(gradients(network), alone)
        assert network.unused.weight.grad is None


def test_one_worker_sends_nothing(network: Network, twin: Twin) -> None:
    alone = gradients_alone(network, (1, 2))
    step(network, GradientBuckets(network.parameters(), Worker()), 1, 2)
    assert equal(gradients(network), alone, factor=1.0)
    assert twin.sent == []


def test_buckets_leave_during_the_last_backward_and_not_before(network: Network, twin: Twin) -> None:
    buckets = GradientBuckets(network.parameters(), Worker(0, 2), bucket_bytes=SMALL_BUCKET_BYTES)
    step(network, buckets, 0)
    network.zero_grad()
    twin.sent.clear()
    num_sent_when_first_layer_begins: list[int] = []
    network.first.register_full_backward_pre_hook(
        lambda module, gradient: num_sent_when_first_layer_begins.append(len(twin.sent))
    )
    for micro in range(3):
        buckets.backward(network.loss(examples(micro).requires_grad_()), is_last=micro == 2)
    assert num_sent_when_first_layer_begins == [0, 0, 1]
    assert len(twin.sent) == 2
    buckets.finish()
    assert len(twin.sent) == 2


def test_a_gradient_that_only_another_worker_has_counts(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Twin(also_has=(4,))  # the unused head's weight
    monkeypatch.setattr(torch.distributed, "all_reduce", twin.all_reduce)
    buckets = GradientBuckets(network.parameters(), Worker(0, 2))
    for seed in (1, 2):
        step(network, buckets, seed)
        assert network.unused.weight.grad is not None
        assert not network.unused.weight.grad.any()
        assert network.unused.bias.grad is None


def test_a_step_that_begins_anew_sends_no_bucket_twice(network: Network, twin: Twin) -> None:
    """Memory runs out in the first layer's backward, when the second layer's gradients have left."""
    buckets = GradientBuckets(network.parameters(), Worker(0, 2), bucket_bytes=SMALL_BUCKET_BYTES)
    step(network, buckets, 0)
    first_try, second_try = gradients_alone(network, (1,)), gradients_alone(network, (2, 3))
    twin.sent.clear()

    def run_out(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    handle = network.first.register_full_backward_pre_hook(run_out)
    with pytest.raises(torch.OutOfMemoryError):
        buckets.backward(network.loss(examples(1).requires_grad_()), is_last=True)
    handle.remove()
    assert len(twin.sent) == 1
    network.zero_grad()
    step(network, buckets, 2, 3)
    assert len(twin.sent) == 2
    assert equal(gradients(network), [*second_try[:2], *first_try[2:]])


def test_bf16_messages_are_rounded_and_gradients_stay_fp32(network: Network, twin: Twin) -> None:
    alone = gradients_alone(network, (1,))
    step(network, GradientBuckets(network.parameters(), Worker(0, 2), precision="bf16"), 1)
    assert {sent.dtype for sent in twin.sent} == {torch.bfloat16}
    found = gradients(network)
    assert not equal(found, alone)
    assert equal(found, [None if each is None else each.bfloat16().float() for each in alone])


@pytest.mark.training
@pytest.mark.parametrize(("num_workers", "precision"), [(3, "fp32"), pytest.param(2, "bf16", marks=pytest.mark.slow)])
def test_a_group_of_three_that_is_killed_ends_with_the_bits_of_one_that_was_not(
    tmp_path: Path, num_workers: int, precision: str
) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    train = partial(run_group, num_workers=num_workers, changes={"gradient_precision": precision})
    assert [status for status, _ in train(straight)] == [0] * num_workers
    assert train(killed, kill_at=10)[0][0] == -signal.SIGKILL
    assert Checkpoints(str(killed / "run")).newest_step() == 10
    assert [status for status, _ in train(killed, attempt=2)] == [0] * num_workers
    assert final_digests(killed) == final_digests(straight)
