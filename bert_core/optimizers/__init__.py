"""The optimizers by name. Each takes parameter groups, a learning rate, betas, epsilon, and whether to correct bias.

A group has `lr` and `weight_decay` of its own. State is tensors by parameter, so that checkpoints keep all of it.
"""

from collections.abc import Mapping
from types import MappingProxyType

from torch.optim import Optimizer

from bert_core.constants import OptimizerName
from bert_core.optimizers.adamw import AdamW
from bert_core.optimizers.lamb import Lamb
from bert_core.optimizers.muon import Muon
from bert_core.optimizers.stable_adamw import StableAdamW

OPTIMIZERS: Mapping[OptimizerName, type[Optimizer]] = MappingProxyType(
    {"adamw": AdamW, "stable_adamw": StableAdamW, "lamb": Lamb, "muon": Muon}
)

__all__ = ["OPTIMIZERS", "AdamW", "Lamb", "Muon", "StableAdamW"]
