"""Each optimizer beside its paper's formula in numpy, or torch's own.

Alone: pytest tests/bert_core/test_optimizers.py
"""

from collections.abc import Callable, Iterator
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from bert_core.constants import OptimizerName
from bert_core.errors import ConfigError
from bert_core.heads import BertForPreTraining, BertForSequenceClassification
from bert_core.optimization import (
    NUM_MATRICES,
    OPTIMIZERS,
    AdamW,
    build_optimizer,
    hidden_matrices,
    orthogonalized,
    unfreeze_top_layers,
)
from tests.bert_core.reference import small_config
from tests.synchronizations import counted_synchronizations

RATE, DECAY, BETAS, EPS = 0.02, 0.1, (0.9, 0.99), 1e-6
Array = np.ndarray[Any, Any]
Rule = Callable[[Array, Array, Array, Array], Array]
"""Formula of an update: a weight, its gradient, and the means of gradient and square give the new weight."""


def gradients(seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Gradients of a matrix and a vector in some steps, of which the fourth ones are far larger."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [1.0, 0.5, 0.1, 30.0, 0.2, 0.1]
    return [tuple(size * torch.randn(shape, generator=generator) for shape in ((4, 3), (5,))) for size in sizes]


def trained(name: OptimizerName, bias_correction: bool = True) -> tuple[Tensor, Tensor]:
    """A matrix, which decays, and a vector, which does not, after those gradients."""
    matrix, vector = (
        torch.nn.Parameter(torch.linspace(-1, 1, n).reshape(shape)) for n, shape in ((12, (4, 3)), (5, 5))
    )
    groups = [{"params": [matrix], "weight_decay": DECAY}, {"params": [vector], "weight_decay": 0.0}]
    optimizer: Any = OPTIMIZERS[name]
    built = optimizer(groups, lr=RATE, betas=BETAS, eps=EPS, bias_correction=bias_correction)
    for matrix.grad, vector.grad in gradients():
        built.step()
    return matrix.detach(), vector.detach()


def by_formula(rule: Rule, bias_correction: bool = True) -> Iterator[Array]:
    """The same by a rule for weights whose means are those of Kingma and Ba 2015, algorithm 1."""
    for place, (count, shape) in enumerate(((12, (4, 3)), (5, (5,)))):
        weight = np.linspace(-1, 1, count).reshape(shape)
        mean, square = np.zeros(shape), np.zeros(shape)
        for t, step in enumerate(gradients(), start=1):
            g = step[place].double().numpy()
            mean = BETAS[0] * mean + (1 - BETAS[0]) * g
            square = BETAS[1] * square + (1 - BETAS[1]) * g * g
            corrections = [1 - beta**t for beta in BETAS] if bias_correction else [1.0, 1.0]
            weight = rule(weight, g, mean / corrections[0], square / corrections[1])
        yield weight


def decay_of(weight: Array) -> float:
    return DECAY if weight.ndim > 1 else 0.0


def adamw(weight: Array, g: Array, m: Array, v: Array) -> Array:
    return weight - RATE * (m / (np.sqrt(v) + EPS) + decay_of(weight) * weight)


def stable_adamw(weight: Array, g: Array, m: Array, v: Array) -> Array:
    rate = RATE / max(1.0, float(np.sqrt(np.mean(g * g / np.maximum(v, EPS * EPS)))))
    return weight * (1 - rate * decay_of(weight)) - rate * m / (np.sqrt(v) + EPS)


def lamb(weight: Array, g: Array, m: Array, v: Array) -> Array:
    update = m / (np.sqrt(v) + EPS) + decay_of(weight) * weight
    trust = np.linalg.norm(weight) / np.linalg.norm(update) if weight.ndim > 1 else 1.0
    return weight - RATE * trust * update


def test_names_are_those_of_the_list() -> None:
    assert get_args(OptimizerName) == tuple(OPTIMIZERS)


@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize(("name", "rule"), [("adamw", adamw), ("stable_adamw", stable_adamw), ("lamb", lamb)])
def test_steps_follow_the_papers_formula(name: OptimizerName, rule: Rule, bias_correction: bool) -> None:
    for weight, expected in zip(trained(name, bias_correction), by_formula(rule, bias_correction), strict=True):
        np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_adamw_has_the_bits_of_torchs() -> None:
    own, theirs = (BertForPreTraining.from_config(small_config(), seed=0) for _ in range(2))
    first = build_optimizer(own, RATE, DECAY, BETAS, EPS)
    groups = [
        {"params": [p for p in theirs.parameters() if (p.dim() > 1) == decays], "weight_decay": DECAY * decays}
        for decays in (True, False)
    ]
    second = torch.optim.AdamW(groups, RATE, BETAS, EPS, fused=True)
    for step in range(3):
        for model, optimizer in ((own, first), (theirs, second)):
            torch.manual_seed(step)
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(own.parameters(), theirs.parameters(), strict=True))
    assert first.state_dict()["param_groups"][0].keys() - {"scale"} == second.param_groups[0].keys()


def test_lamb_steps_by_the_norm_of_the_weights_and_leaves_zeros_to_adamw() -> None:
    weights = [torch.nn.Parameter(torch.full((3, 3), value)) for value in (100.0, 1.0, 0.0)]
    optimizer = OPTIMIZERS["lamb"]([{"params": weights, "weight_decay": 0.0}], lr=0.1)
    before = [weight.detach().clone() for weight in weights]
    for weight in weights:
        weight.grad = torch.ones(3, 3)
    optimizer.step()
    moved = [float((weight.detach() - old).norm()) for weight, old in zip(weights, before, strict=True)]
    assert moved == pytest.approx([30.0, 0.3, 0.3], rel=1e-4)


def test_orthogonalized_keeps_directions_and_makes_singular_values_alike() -> None:
    torch.manual_seed(0)
    for shape in ((2, 24, 16), (2, 16, 24), (3, 2, 16, 16)):
        matrices = torch.randn(shape, dtype=torch.float64)
        u, _, v = torch.linalg.svd(matrices, full_matrices=False)
        turned = u.mT @ orthogonalized(matrices) @ v.mT
        singular_values = torch.diagonal(turned, dim1=-2, dim2=-1)
        assert (turned - torch.diag_embed(singular_values)).abs().max() < 1e-6
        # In five iterations those that are nearly 0 stay behind, as in the authors' figure.
        assert 0.65 < float(singular_values.quantile(0.1)) < float(singular_values.max()) < 1.25


@pytest.mark.parametrize("shape", [(32, 16), (16, 48), (16, 16)])
def test_muon_agrees_with_torchs(shape: tuple[int, int]) -> None:
    """Which multiplies in bf16."""
    own, theirs = (torch.nn.Parameter(torch.ones(shape)) for _ in range(2))
    groups = [{"params": [own], "weight_decay": DECAY, NUM_MATRICES: 1}]
    first = OPTIMIZERS["muon"](groups, lr=RATE)
    second = torch.optim.Muon([theirs], lr=RATE, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw")
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        own.grad = torch.randn(shape, generator=generator)
        theirs.grad = own.grad.clone()
        first.step()
        second.step()
    difference, moved = (own - theirs).detach(), (theirs - 1).detach()
    assert difference.norm() < 0.03 * moved.norm()


def test_muon_is_for_the_matrices_of_layers_and_adamw_for_the_rest() -> None:
    model = BertForPreTraining.from_config(small_config(num_hidden_layers=2))
    matrices = hidden_matrices(model)
    assert set(matrices) == {
        f"bert.layers.{place}.{name}.weight"
        for place in range(2)
        for name in ("qkv", "attention_output", "intermediate", "output")
    }
    optimizer = build_optimizer(model, 1e-3, optimizer="muon")
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    state = {name: set(optimizer.state[parameter]) for name, parameter in model.named_parameters()}
    assert all((kinds == {"momentum_buffer"}) == (name in matrices) for name, kinds in state.items())
    assert all("exp_avg" in kinds for name, kinds in state.items() if name not in matrices)


def test_queries_keys_and_values_are_orthogonalized_apart_as_are_the_halves_of_a_gate() -> None:
    model = BertForPreTraining.from_config(small_config(feed_forward="gated", num_key_value_heads=1))
    assert hidden_matrices(model)["bert.layers.0.intermediate.weight"] == 2
    assert hidden_matrices(model)["bert.layers.0.qkv.weight"] == 5, "three heads of queries, one of keys and of values"
    together, apart = (
        torch.nn.Parameter(torch.zeros(48, 16)),
        [torch.nn.Parameter(torch.zeros(16, 16)) for _ in range(3)],
    )
    torch.manual_seed(0)
    together.grad = torch.randn(48, 16)
    for part, gradient in zip(apart, together.grad.chunk(3), strict=True):
        part.grad = gradient.clone()
    OPTIMIZERS["muon"]([{"params": [together], "weight_decay": 0.0, NUM_MATRICES: 3}], lr=1.0).step()
    OPTIMIZERS["muon"]([{"params": apart, "weight_decay": 0.0, NUM_MATRICES: 1}], lr=1.0).step()
    torch.testing.assert_close(together.detach(), torch.cat([part.detach() for part in apart]), rtol=1e-5, atol=1e-6)


def test_muon_without_a_matrix_that_learns_is_refused() -> None:
    model = BertForSequenceClassification.from_config(small_config())
    unfreeze_top_layers(model, 0)
    with pytest.raises(ConfigError, match="optimizer"):
        build_optimizer(model, 1e-3, optimizer="muon")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_waits_for_no_device_and_leaves_what_has_no_gradient(name: OptimizerName) -> None:
    model = BertForPreTraining.from_config(small_config())
    optimizer = build_optimizer(model, 1e-3, optimizer=name)
    frozen = model.bert.layers[0].qkv.weight
    before = frozen.detach().clone()
    with counted_synchronizations() as waits:
        for parameter in model.parameters():
            parameter.grad = None if parameter is frozen else torch.ones_like(parameter)
        optimizer.step()
    assert not [wait for wait in waits if "bert_core" in wait]
    assert torch.equal(frozen, before)
    assert not optimizer.state[frozen]


def test_uncorrected_adamw_counts_on_after_its_state_is_gone() -> None:
    """The state is cleared where a training goes back to its first step."""
    weight = torch.nn.Parameter(torch.zeros(2, 2))
    optimizer = AdamW([{"params": [weight], "weight_decay": 0.0}], lr=1.0, bias_correction=False)
    moved = []
    for _ in range(2):
        weight.data.zero_()
        optimizer.state.clear()
        weight.grad = torch.ones(2, 2)
        optimizer.step()
        moved.append(float(weight.detach()[0, 0]))
    assert moved == pytest.approx([-(0.1 / 0.001**0.5)] * 2, rel=1e-4)
