"""Decay groups and the learning rate's way. Run alone: pytest tests/bert_core/test_optimization.py"""

import pytest
import torch
import transformers

from bert_core.heads import BertForPreTraining
from bert_core.optimization import build_optimizer, linear_warmup_decay
from tests.bert_core.reference import small_config


def test_biases_and_layer_norm_do_not_decay() -> None:
    model = BertForPreTraining.from_config(small_config())
    optimizer = build_optimizer(model, learning_rate=1e-3, weight_decay=0.5)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed, kept = ([names[id(p)] for p in group["params"]] for group in optimizer.param_groups)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5, 0.0]
    assert sorted(decayed + kept) == sorted(names.values())
    assert all(("norm." in name or name.endswith("bias")) == (name in kept) for name in names.values())


def test_frozen_weights_are_left_out() -> None:
    model = BertForPreTraining.from_config(small_config())
    model.bert.embeddings.requires_grad_(False)
    optimizer = build_optimizer(model, 1e-3)
    chosen = sum(len(group["params"]) for group in optimizer.param_groups)
    assert chosen == len(list(model.parameters())) - 5


def test_step_follows_the_formula() -> None:
    weight = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.constant_(weight.weight, 1.0)
    optimizer = build_optimizer(weight, learning_rate=0.1, weight_decay=0.2, betas=(0.9, 0.99), eps=1e-6)
    weight.weight.grad = torch.tensor([[3.0, -0.5]])
    optimizer.step()
    # In the first step the corrected moments are g and g², so that the step is the gradient's sign.
    expected = torch.tensor([[1.0, 1.0]]) * (1 - 0.1 * 0.2) - 0.1 * torch.tensor([[1.0, -1.0]])
    torch.testing.assert_close(weight.weight.detach(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("total", "warmup"), [(10, 0), (10, 3), (7, 7), (1, 0)])
def test_learning_rate_agrees_with_transformers(total: int, warmup: int) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, total)
    for step in range(total + 2):
        assert linear_warmup_decay(step, total, warmup) == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
