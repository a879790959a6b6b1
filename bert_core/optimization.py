"""The optimizers by name, and a model's parameters in groups, with learning rates by layer.

Each optimizer takes parameter groups, a learning rate, betas, epsilon, and whether to correct bias. A group has `lr`
and `weight_decay` of its own. State is tensors by parameter, so that checkpoints keep all of it.

Rates are smaller further down, or layers stay frozen until later: Howard and Ruder 2018 (ULMFiT), sections 3.2
(discriminative fine-tuning) and 3.3 (gradual unfreezing). The depth of a parameter is 0 in the embeddings, 1 to L in
the layers, L + 1 in the head.

Shapes, of Muon: P parameters of one shape, M matrices that lie above one another in each, A rows and B columns of a
matrix.
"""

import math
import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bert_core.constants import OptimizerName
from bert_core.encoder_layer import EncoderLayer
from bert_core.errors import ConfigError

_UNCORRECTED_STEP = 2.0**40
"""Step at which 1 − β^t is 1 in float32 for every β, and t + 1 is t."""


class AdamW(torch.optim.AdamW):
    """AdamW (Loshchilov and Hutter 2019) by torch's fused kernel, with or without bias correction.

    Args:
        bias_correction: whether moments are divided by 1 − β^t (Kingma and Ba 2015, section 3). BERT's own optimizer
            leaves that out (`optimization.py` of google-research/bert), so that its first steps are larger: with β of
            0.9 and 0.999 by 3.2 in the first one, and by 6.6 at most.
    """

    def __init__(
        self,
        groups: Iterable[Mapping[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        bias_correction: bool = True,
    ) -> None:
        super().__init__([dict(group) for group in groups], lr=lr, betas=betas, eps=eps, fused=True)
        self._bias_correction = bias_correction

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        if not self._bias_correction:
            self._begin_uncorrected()
        return super().step(closure)  # type: ignore[no-any-return]

    def _begin_uncorrected(self) -> None:
        """Give parameters without state the moments of a first step, and a step number that corrects nothing."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not self.state[parameter]:
                    self.state[parameter] = {
                        "step": torch.full((), _UNCORRECTED_STEP, device=parameter.device),
                        "exp_avg": torch.zeros_like(parameter),
                        "exp_avg_sq": torch.zeros_like(parameter),
                    }


class MomentOptimizer(Optimizer):
    """Base of optimizers that follow running means of gradients and of their squares (Kingma and Ba 2015) by a rule.

    What a step does is launched for a whole group at once, and nothing of it waits for the device.

    The means are kept corrected: β_t = β (1 − β^(t−1)) / (1 − β^t) in place of β gives m / (1 − β^t) at once, without
    a division in each step (Shazeer and Stern 2018, section 7.1).

    Args:
        bias_correction: whether it is so; otherwise both means begin at 0 and are taken as they are.
    """

    def __init__(
        self,
        groups: Iterable[Mapping[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        bias_correction: bool = True,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "bias_correction": bias_correction}
        super().__init__([dict(group) for group in groups], defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "no caller needs one"
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                gradients = [parameter.grad for parameter in parameters]
                self.update(group, parameters, gradients, *self._moments(group, parameters, gradients))

    @abstractmethod
    def update(
        self,
        group: Mapping[str, Any],
        parameters: list[Tensor],
        gradients: list[Tensor],
        means: list[Tensor],
        squares: list[Tensor],
    ) -> None:
        """Change parameters in place, by the means of their gradients and of the gradients' squares."""

    def _moments(
        self, group: Mapping[str, Any], parameters: Sequence[Tensor], gradients: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        for parameter in parameters:
            if not self.state[parameter]:
                zeros = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                self.state[parameter] = {"step": 0, **zeros}
        states = [self.state[parameter] for parameter in parameters]
        for state in states:
            state["step"] = int(state["step"]) + 1  # a tensor of the host's after loading
        means, squares = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        betas = group["betas"]
        if group["bias_correction"]:
            shares = [[1 - _corrected(beta, state["step"]) for state in states] for beta in betas]
        else:
            shares = [[1 - beta] * len(states) for beta in betas]
        torch._foreach_lerp_(means, gradients, shares[0])
        torch._foreach_mul_(squares, [1 - share for share in shares[1]])
        torch._foreach_addcmul_(squares, gradients, gradients, shares[1])
        return means, squares


def updates_of(means: list[Tensor], roots: tuple[Tensor, ...], eps: float) -> tuple[Tensor, ...]:
    """Adam's updates m / (√v + ε), in place of the roots √v: on CPUs new memory takes longer than arithmetic."""
    torch._foreach_add_(roots, eps)
    torch._foreach_reciprocal_(roots)
    torch._foreach_mul_(roots, means)
    return roots


def _corrected(beta: float, step: int) -> float:
    """Decay that keeps a running mean corrected, in a step counted from 1."""
    return float(beta * (1 - beta ** (step - 1)) / (1 - beta**step))


class Lamb(MomentOptimizer):
    """LAMB (You et al. 2020): AdamW's update, as long as the weights that it changes (algorithm 2, φ(z) = z).

    Each matrix steps by the learning rate times its own norm. Biases and LayerNorm step as in AdamW, as in the authors'
    code, and so does a matrix of zeros.
    """

    def update(
        self,
        group: Mapping[str, Any],
        parameters: list[Tensor],
        gradients: list[Tensor],
        means: list[Tensor],
        squares: list[Tensor],
    ) -> None:
        updates = updates_of(means, torch._foreach_sqrt(squares), group["eps"])
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        matrices = [place for place, parameter in enumerate(parameters) if parameter.dim() > 1]
        if matrices:
            chosen = [updates[place] for place in matrices]
            weight_norms = torch.stack(torch._foreach_norm([parameters[place] for place in matrices]))
            update_norms = torch.stack(torch._foreach_norm(chosen))
            ratios = torch.where((weight_norms > 0) & (update_norms > 0), weight_norms / update_norms, 1.0)
            torch._foreach_mul_(chosen, list(ratios.unbind()))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])


class StableAdamW(MomentOptimizer):
    """StableAdamW (Wortsman et al. 2023, algorithm 2): a tensor whose second moment lags behind steps less far.

    This is Adafactor's update clipping.

    The learning rate of each tensor, that of its weight decay too, is divided by max(1, RMS), where RMS is the root of
    the mean over the tensor of g² / max(v, ε²). So clipping gradients is not needed as well.
    """

    def update(
        self,
        group: Mapping[str, Any],
        parameters: list[Tensor],
        gradients: list[Tensor],
        means: list[Tensor],
        squares: list[Tensor],
    ) -> None:
        roots = torch._foreach_sqrt(squares)
        ratios = torch._foreach_clamp_min(roots, group["eps"])
        torch._foreach_reciprocal_(ratios)
        torch._foreach_mul_(ratios, gradients)
        rms = torch._foreach_norm(ratios)
        torch._foreach_div_(rms, [math.sqrt(parameter.numel()) for parameter in parameters])
        torch._foreach_clamp_min_(rms, 1.0)
        updates = updates_of(means, roots, group["eps"])
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        torch._foreach_div_(updates, rms)
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])


NUM_MATRICES = "num_matrices"
"""Key of a parameter group of hidden matrices: how many lie above one another in each of them."""
_MOMENTUM = 0.95
_NUM_ITERATIONS, _COEFFICIENTS = 5, (3.4445, -4.7750, 2.0315)
"""Newton–Schulz iterations and their quintic, which takes singular values from 0.01 on to between 0.7 and 1.2."""
_ADAMW_RMS = 0.2
"""Root mean square of AdamW's updates, as Moonlight measured it (section 2.2)."""


class Muon(Optimizer):
    """Muon (Jordan et al. 2024), orthogonalized momentum, for groups with `num_matrices`; AdamW for all others.

    As in Moonlight (Liu et al. 2025), an update of hidden matrices is U Vᵀ of the Nesterov momentum U S Vᵀ, times
    0.2 √max(A, B): its root mean square is then that of AdamW's, so that both parts go well with the same learning rate
    and weight decay. `torch.optim.Muon` computes the same, one matrix after the other and always in bf16. Here all of a
    shape are multiplied at once, on CPUs in fp32. Queries, keys and values, which one matrix holds, are orthogonalized
    apart, as are the halves of a gated layer.
    """

    def __init__(
        self,
        groups: Iterable[Mapping[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        bias_correction: bool = True,
    ) -> None:
        self._adamw = AdamW(groups, lr, betas, eps, bias_correction)
        super().__init__(self._adamw.param_groups, self._adamw.defaults)

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "no caller needs one"
        for group in self.param_groups:
            if NUM_MATRICES in group:
                self._step_matrices(group)
        # Anew in each step, as loading a state replaces both.
        self._adamw.param_groups = [group for group in self.param_groups if NUM_MATRICES not in group]
        self._adamw.state = self.state
        self._adamw.step()

    @torch.no_grad()
    def _step_matrices(self, group: dict[str, Any]) -> None:
        with_gradient = [parameter for parameter in group["params"] if parameter.grad is not None]
        for shape in sorted({parameter.shape for parameter in with_gradient}):
            parameters = [parameter for parameter in with_gradient if parameter.shape == shape]
            gradients = [parameter.grad for parameter in parameters]
            for parameter in parameters:
                if not self.state[parameter]:
                    self.state[parameter] = {"momentum_buffer": torch.zeros_like(parameter)}
            buffers = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
            torch._foreach_lerp_(buffers, gradients, 1 - _MOMENTUM)
            momentum = torch.stack(torch._foreach_lerp(gradients, buffers, _MOMENTUM))  # (P, M·A, B)
            matrices = momentum.reshape(len(parameters), group[NUM_MATRICES], -1, shape[1])  # (P, M, A, B)
            updates = orthogonalized(matrices)
            rate = group["lr"] * _ADAMW_RMS * math.sqrt(max(updates.shape[-2:]))
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(parameters, list(updates.reshape(-1, *shape).unbind()), alpha=-rate)


def orthogonalized(matrices: Tensor) -> Tensor:
    """Compute about U Vᵀ of each matrix U S Vᵀ: (…, A, B) → (…, A, B), by products alone, on GPUs in bf16."""
    is_tall = matrices.size(-2) > matrices.size(-1)
    x: Tensor = matrices.bfloat16() if matrices.is_cuda else matrices
    x = x.mT if is_tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_NUM_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if is_tall else x).to(matrices.dtype)


OPTIMIZERS: Mapping[OptimizerName, type[Optimizer]] = MappingProxyType(
    {"adamw": AdamW, "stable_adamw": StableAdamW, "lamb": Lamb, "muon": Muon}
)

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_EMBEDDINGS = re.compile(r"(?:^|\.)(?:embeddings|convolution)\.")  # DeBERTa-v2's is of them


def depths(model: nn.Module) -> dict[str, int]:
    """Depth of each parameter by name; where layers share weights, L counts those with weights of their own."""
    layers = {name: int(match[1]) for name, _ in model.named_parameters() if (match := _LAYER.search(name))}
    top = max(layers.values(), default=-1) + 2
    return {
        name: layers[name] + 1 if name in layers else 0 if _EMBEDDINGS.search(name) else top
        for name, _ in model.named_parameters()
    }


def learning_rate_scales(model: nn.Module, decay: float, head: float = 1.0) -> dict[str, float]:
    """Factor on each parameter's learning rate: `decay` to the power of its distance from the head, the head's `head`.

    >>> model = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)]), "head": nn.Linear(1, 1)})
    >>> [learning_rate_scales(model, 0.5)[f"{name}.bias"] for name in ("layers.0", "layers.1", "head")]
    [0.25, 0.5, 1.0]
    """
    found = depths(model)
    top = max(found.values())
    return {name: head if depth == top else decay ** (top - depth) for name, depth in found.items()}


def unfreeze_top_layers(model: nn.Module, num_layers: int) -> None:
    """Train the head and the uppermost `num_layers` layers, freeze the rest; the embeddings count as a layer."""
    found = depths(model)
    lowest = max(found.values()) - num_layers
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(found[name] >= lowest)


SCALE = "scale"
"""Key of a parameter group for its factor on the run's learning rate."""


def hidden_matrices(model: nn.Module) -> dict[str, int]:
    """Weight matrices of the encoder's layers by name, and how many lie above one another in each of them.

    >>> from bert_core import BertConfig, BertModel
    >>> set(hidden_matrices(BertModel.from_config(BertConfig.from_size("tiny"))).values())
    {1, 3}
    """
    return {
        f"{place}.{name}": {
            "qkv.weight": sum(layer.qkv_heads) // layer.qkv_heads[1],  # of queries as many as share a head of keys
            "intermediate.weight": 1 + layer.is_gated,
        }.get(name, 1)
        for place, layer in model.named_modules()
        if isinstance(layer, EncoderLayer)
        for name, parameter in layer.named_parameters()
        if parameter.dim() == 2
    }


def build_optimizer(
    model: nn.Module,
    learning_rate: float,
    weight_decay: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
    layer_decay: float = 1.0,
    head_learning_rate: float | None = None,
    optimizer: OptimizerName = "adamw",
    bias_correction: bool = True,
    module_learning_rates: Mapping[str, float] = MappingProxyType({}),
) -> Optimizer:
    """Build an optimizer with decay on matrices alone: none on biases and norms, as in BERT.

    Parameters with fewer than two dimensions are exactly these. Each layer's learning rate is `layer_decay` times that
    of the layer above it, and the head's is `learning_rate` unless it has one of its own. `module_learning_rates` are
    those of modules within it, as `crf` and `layer_pooling`, by their attribute's name.

    Raises: ConfigError for Muon where no matrix of a hidden layer learns.
    """
    head_scale = 1.0 if head_learning_rate is None else head_learning_rate / learning_rate
    scales = learning_rate_scales(model, layer_decay, head_scale)
    for name in scales:
        for module, rate in module_learning_rates.items():
            if module in name.split("."):
                scales[name] = rate / learning_rate
    hidden = hidden_matrices(model) if optimizer == "muon" else {}
    groups: dict[tuple[float, float, int], list[nn.Parameter]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decay = weight_decay if parameter.dim() > 1 else 0.0
            groups[decay, scales[name], hidden.get(name, 0)].append(parameter)
    if optimizer == "muon" and not any(num_matrices for _, _, num_matrices in groups):
        raise ConfigError("optimizer muon is for matrices of hidden layers, and none learns; take adamw")
    settings = [
        {"params": parameters, "weight_decay": decay, SCALE: scale, "lr": learning_rate * scale}
        | ({NUM_MATRICES: num_matrices} if num_matrices else {})
        for (decay, scale, num_matrices), parameters in groups.items()
    ]
    chosen: Any = OPTIMIZERS[optimizer]
    built: Optimizer = chosen(settings, lr=learning_rate, betas=betas, eps=eps, bias_correction=bias_correction)
    return built


def set_learning_rate(optimizer: Optimizer, learning_rate: float) -> None:
    """Set the run's learning rate; each group gets it times its own factor."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group[SCALE]
