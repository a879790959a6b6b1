"""The optimizer."""

from collections import defaultdict

from torch import nn
from torch.optim import AdamW, Optimizer

from bert_core.layerwise import learning_rate_scales

SCALE = "scale"
"""Key of a parameter group for its factor on the run's learning rate."""


def build_optimizer(
    model: nn.Module,
    learning_rate: float,
    weight_decay: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
    layer_decay: float = 1.0,
    head_learning_rate: float | None = None,
) -> AdamW:
    """Build AdamW (Loshchilov and Hutter 2019) with decay on matrices alone: none on biases and LayerNorm, as in BERT.

    Parameters with fewer than two dimensions are exactly these. Each layer's learning rate is `layer_decay` times that
    of the layer above it (see `layerwise`), and the head's is `learning_rate` unless it has one of its own. The fused
    kernel does a step in one pass over memory.
    """
    head_scale = 1.0 if head_learning_rate is None else head_learning_rate / learning_rate
    scales = learning_rate_scales(model, layer_decay, head_scale)
    groups: dict[tuple[float, float], list[nn.Parameter]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups[weight_decay if parameter.dim() > 1 else 0.0, scales[name]].append(parameter)
    settings = [
        {"params": parameters, "weight_decay": decay, SCALE: scale, "lr": learning_rate * scale}
        for (decay, scale), parameters in groups.items()
    ]
    return AdamW(settings, lr=learning_rate, betas=betas, eps=eps, fused=True)


def set_learning_rate(optimizer: Optimizer, learning_rate: float) -> None:
    """Set the run's learning rate; each group gets it times its own factor."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group[SCALE]
