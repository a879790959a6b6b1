"""The optimiser and the learning rate's way through a run."""

from torch import nn
from torch.optim import AdamW


def build_optimizer(
    model: nn.Module,
    learning_rate: float,
    weight_decay: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
) -> AdamW:
    """AdamW (Loshchilov and Hutter 2019) with decay on matrices alone: none on biases and LayerNorm, as in BERT.

    Parameters with fewer than two dimensions are exactly these. The fused kernel does a step in one pass over memory.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=learning_rate, betas=betas, eps=eps, fused=True)


def linear_warmup_decay(step: int, total_steps: int, warmup_steps: int) -> float:
    """Factor on the peak learning rate in a step, counted from 0 (Devlin et al. 2018, appendix A.2).

    It rises from 0 to 1 over the warm-up and falls to 0, which it would reach in the step after the last.

    >>> [linear_warmup_decay(step, total_steps=6, warmup_steps=2) for step in range(7)]
    [0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if step < warmup_steps:
        return step / warmup_steps
    return max(0.0, (total_steps - step) / max(1, total_steps - warmup_steps))
