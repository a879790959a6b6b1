"""A model's optimizer, and learning rates by layer: smaller further down, or layers that stay frozen until later.

Howard and Ruder 2018 (ULMFiT), sections 3.2 (discriminative fine-tuning) and 3.3 (gradual unfreezing). The depth of a
parameter is 0 in the embeddings, 1 to L in the layers, L + 1 in the head.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import nn
from torch.optim import Optimizer

from bert_core.constants import OptimizerName
from bert_core.encoder_layer import EncoderLayer
from bert_core.errors import ConfigError
from bert_core.optimizers import NUM_MATRICES, OPTIMIZERS

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
