"""Work of a training that a card does beside the host: fed batches, votes, clocks, and copies of a checkpoint.

Needs torch, `bert_core` and modules of the orchestrator that import nothing else. Run alone:
pytest tests/gpu/test_streams_and_copies.py. Whole training runs: tests/gpu/test_synchronizations.py.
"""

import itertools
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from benchmarks._pretraining_batches import loss_of
from benchmarks.gpu.own_step import Learner, build_learner, own_loss, packed_inputs
from benchmarks.gpu.texts import first_batches, generated_text
from bert_core.checkpoints.training_state import contents_of
from bert_core.device_copies import HostCopies, copy_together
from bert_core.examples.packing import PackedBatch
from orchestrator.pretraining.collectives import StopFlag
from orchestrator.pretraining.device_batch import MicroBatch, device_batches
from orchestrator.training.clocks import Clock, DeviceClock, clock_of
from tests.gpu.devices import ON_EACH_DEVICE, small_setting

TEXT = generated_text(num_documents=100, num_words=48)
BATCHES = first_batches(TEXT, 12, 4, 16, seed=1)


@pytest.fixture
def refuse_to_wait() -> Iterator[Callable[[str], None]]:
    """Function that makes PyTorch raise where the host waits for a card; what was set is undone afterwards."""

    def refuse(device: str) -> None:
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("error")

    yield refuse
    allow_to_wait()


def allow_to_wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.set_sync_debug_mode("default")


def keep_busy(device: str) -> None:
    """Put work in line that takes a card some 50 ms, so that whatever is read too early is seen."""
    size, num_products = (4096, 20) if device == "cuda" else (64, 1)
    matrix = torch.ones(size, size, device=device)
    for _ in range(num_products):
        torch.mm(matrix, matrix)


def build(device: torch.device) -> Learner:
    return build_learner(small_setting(device.type).build_config("mini", vocab_size=TEXT.vocab_size), device)


def fed_loss(learner: Learner, micro: MicroBatch) -> Callable[[], Tensor]:
    return lambda: loss_of(learner.model, micro.sequences, micro.labels)  # type: ignore[arg-type]


@ON_EACH_DEVICE
def test_fed_batches_arrive_whole_while_the_device_is_busy(device: str, refuse_to_wait: Callable[[str], None]) -> None:
    target = torch.device(device)
    keep_busy(device)  # before the libraries' handles are made, which waits
    refuse_to_wait(device)
    found: list[list[Tensor]] = []
    for _, batch in device_batches(enumerate(BATCHES), target):
        keep_busy(device)
        (micro,) = batch.cut([batch.host])
        labels = micro.labels
        found.append([micro.sequences.input_ids.clone(), labels.masked_positions, labels.masked_labels])
    allow_to_wait()
    expected = [[batch.input_ids, batch.masked_positions, batch.masked_labels] for batch in BATCHES]
    assert [[tensor.tolist() for tensor in each] for each in found] == [[a.tolist() for a in each] for each in expected]


@ON_EACH_DEVICE
def test_steps_on_fed_batches_have_the_losses_of_steps_on_batches_that_lie_there(device: str) -> None:
    target = torch.device(device)
    fed, plain = build(target), build(target)
    fed_losses, plain_losses = [], []
    for (step, batch), inputs in zip(
        device_batches(enumerate(BATCHES), target), [packed_inputs(each, target) for each in BATCHES], strict=True
    ):
        (micro,) = batch.cut([batch.host])
        torch.manual_seed(step)
        fed_losses.append(fed.step(fed_loss(fed, micro)))
        torch.manual_seed(step)
        plain_losses.append(plain.step(own_loss(plain, inputs)))
    tolerance = 0.0 if target.type == "cpu" else 1e-6
    found, expected = torch.stack(fed_losses).tolist(), torch.stack(plain_losses).tolist()
    assert min(abs(one - other) for one, other in itertools.combinations(expected, 2)) > 100 * tolerance
    assert found == pytest.approx(expected, rel=tolerance, abs=0)


@ON_EACH_DEVICE
def test_tensors_of_one_transfer_are_whole_while_the_device_is_busy(device: str) -> None:
    sent = [
        {"ids": torch.full((501,), number), "mask": torch.ones(3, 7, dtype=torch.bool), "none": torch.zeros(0, 3)}
        | {"borders": torch.tensor(number, dtype=torch.int32), "states": torch.full((7, 3), number / 4).bfloat16()}
        for number in range(16)
    ]
    arrived = []
    for tensors in sent:
        keep_busy(device)
        arrived.append(copy_together(tensors, torch.device(device)))
    for tensors, copies in zip(sent, arrived, strict=True):
        assert all(torch.equal(copies[name].cpu(), tensor) for name, tensor in tensors.items())


def test_an_error_of_the_source_comes_behind_the_batches_before_it() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def failing() -> Iterator[tuple[int, PackedBatch]]:
        yield 0, BATCHES[0]
        raise OSError("shard-1.parquet is damaged")

    fed = device_batches(failing(), device)
    assert next(fed)[0] == 0
    with pytest.raises(OSError, match="shard-1"):
        next(fed)


@ON_EACH_DEVICE
@pytest.mark.parametrize("num_stopping", [0, 1, 3])
def test_a_vote_is_that_of_the_workers_and_is_sent_without_waiting(
    num_stopping: int, device: str, refuse_to_wait: Callable[[str], None]
) -> None:
    target = torch.device(device)
    number = torch.full((), -1, device=target)
    sending = torch.full((), num_stopping, device=target)
    keep_busy(device)
    refuse_to_wait(device)
    number.copy_(sending)  # behind the work in line: a vote that is read too early is still −1, or what lay there
    vote = StopFlag.send(number)
    allow_to_wait()
    assert (vote.arrived is not None) == vote.num_stopping.is_pinned() == (device == "cuda")
    assert vote.is_set() is (num_stopping > 0)
    assert int(vote.num_stopping) == num_stopping


@ON_EACH_DEVICE
def test_a_clock_tells_the_seconds_of_the_devices_work(device: str, refuse_to_wait: Callable[[str], None]) -> None:
    target = torch.device(device)
    clock = clock_of(target)
    assert isinstance(clock, DeviceClock if device == "cuda" else Clock)
    keep_busy(device)
    clock.wait()
    begun_at = time.perf_counter()
    refuse_to_wait(device)
    first = clock.mark()
    keep_busy(device)
    middle = clock.mark()
    keep_busy(device)
    last = clock.mark()
    clock.wait()
    elapsed_s = time.perf_counter() - begun_at
    whole_s = clock.seconds_between(first, last)
    parts_s = [clock.seconds_between(first, middle), clock.seconds_between(middle, last)]
    assert 0 < whole_s <= 1.01 * elapsed_s
    assert min(parts_s) > 0
    assert sum(parts_s) == pytest.approx(whole_s, abs=1e-4)


@ON_EACH_DEVICE
def test_copies_of_a_checkpoint_stay_while_training_goes_on_and_their_memory_is_used_again(device: str) -> None:
    target, copies = torch.device(device), HostCopies()
    learner = build(target)
    inputs = [packed_inputs(batch, target) for batch in BATCHES[:3]]
    learner.step(own_loss(learner, inputs[0]))
    tensors = dict(learner.model.named_parameters())
    as_they_were = {name: weight.detach().cpu().clone() for name, weight in tensors.items()}
    copied = copies.of(tensors)
    learner.step(own_loss(learner, inputs[1]))
    assert all(torch.equal(copied[name], weight) for name, weight in as_they_were.items())
    assert any(not torch.equal(weight.detach().cpu(), as_they_were[name]) for name, weight in tensors.items())
    assert all(copy.device.type == "cpu" and copy.is_pinned() == (device == "cuda") for copy in copied.values())
    again = copies.of(tensors)
    assert all(again[name] is copied[name] for name in tensors)
    assert all(torch.equal(again[name], weight.detach().cpu()) for name, weight in tensors.items())


@ON_EACH_DEVICE
def test_the_state_of_a_training_is_copied_with_its_moments(device: str) -> None:
    target, copies = torch.device(device), HostCopies()
    learner = build(target)
    learner.step(own_loss(learner, packed_inputs(BATCHES[0], target)))
    direct = contents_of(learner.model, learner.optimizer, {})
    copied = contents_of(learner.model, learner.optimizer, {}, copies.of)
    for expected, found in (
        (direct.weights, copied.weights),
        (direct.optimizer_tensors, copied.optimizer_tensors),
    ):
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert any("exp_avg" in name for name in copied.optimizer_tensors)
