"""The record of operations that would wait for a GPU. Alone: pytest tests/contracts/test_synchronizations.py"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.synchronizations import counted_synchronizations

WAITING: dict[str, Callable[[Tensor, Tensor], object]] = {
    "item": lambda x, mask: x[0].item(),
    "bool": lambda x, mask: bool(mask.any()),
    "cpu": lambda x, mask: x.cpu(),
    "nonzero": lambda x, mask: mask.nonzero(),
    "mask": lambda x, mask: x[mask],
    "assignment by a mask": lambda x, mask: x.clone().__setitem__(mask, x[:2]),
    "unique": lambda x, mask: x.unique(),
    "repeat_interleave": lambda x, mask: x.repeat_interleave(x.long()),
    "equal": lambda x, mask: torch.equal(x, x),
    "tensor": lambda x, mask: torch.tensor([1, 2], device=x.device),
    "to a device": lambda x, mask: x.to(mask.device),
}

GOING_ON: dict[str, Callable[[Tensor, Tensor], object]] = {
    "arithmetic": lambda x, mask: (x * 2).softmax(0).amax(),
    "where": lambda x, mask: torch.where(mask, x, 0.0),
    "masked_fill": lambda x, mask: x.masked_fill(mask, 1.0),
    "filling by a mask": lambda x, mask: x.clone().__setitem__(mask, 0.0),
    "index": lambda x, mask: x[torch.arange(2)],
    "slice": lambda x, mask: x[1:3],
    "repeat_interleave": lambda x, mask: x.repeat_interleave(x.long(), output_size=6),
    "type": lambda x, mask: x.to(torch.float64).long(),
    "copy to the device": lambda x, mask: x.to(mask.device, non_blocking=True),
    "host": lambda x, mask: torch.tensor([1, 2]),
    "filled": lambda x, mask: x.new_full((2,), 3.0) + torch.arange(2, device=x.device),
}


@pytest.mark.parametrize("name", WAITING)
def test_what_waits_is_recorded_once_with_its_place(name: str) -> None:
    x, mask = torch.arange(4.0), torch.tensor([True, False, True, False])
    with counted_synchronizations() as waits:
        WAITING[name](x, mask)
    (wait,) = waits
    assert "test_synchronizations.py:" in wait


@pytest.mark.parametrize("name", GOING_ON)
def test_what_does_not_wait_is_not_recorded(name: str) -> None:
    x, mask = torch.arange(4.0), torch.tensor([True, False, True, False])
    with counted_synchronizations() as waits:
        GOING_ON[name](x, mask)
    assert waits == []


def test_the_backward_pass_is_watched() -> None:
    class Waiting(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:
            return gradient * float(gradient[0])

    x = torch.ones(3, requires_grad=True)
    with counted_synchronizations() as waits:
        Waiting.apply(x).sum().backward()
    assert [wait.split()[0] for wait in waits] == ["_local_scalar_dense"]


def test_nothing_is_recorded_after_the_block() -> None:
    with counted_synchronizations() as waits:
        pass
    float(torch.ones(()))
    assert waits == []
