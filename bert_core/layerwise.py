"""Learning rates by layer: smaller ones further down, or layers that stay frozen until later.

Howard and Ruder 2018 (ULMFiT), sections 3.2 (discriminative fine-tuning) and 3.3 (gradual unfreezing). The depth of a
parameter is 0 in the embeddings, 1 to L in the layers, L + 1 in the head.
"""

import re

from torch import nn

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_EMBEDDINGS = re.compile(r"(?:^|\.)embeddings\.")


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
