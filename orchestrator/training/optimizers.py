"""The optimizer and the learning rate that a spec asks for, by the fields that pretraining and recipes have alike."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from torch import nn
from torch.optim import Optimizer

from bert_core.learning_rates import learning_rate_factor
from bert_core.optimization import build_optimizer

if TYPE_CHECKING:  # the GPU benchmark runs on machines without pydantic
    from orchestrator.specs import PretrainSpec, RecipeSpec


def optimizer_of(
    spec: "PretrainSpec | RecipeSpec",
    model: nn.Module,
    layer_decay: float = 1.0,
    head_rate: float | None = None,
    module_rates: Mapping[str, float] = MappingProxyType({}),
) -> Optimizer:
    """Build the optimizer of a model. Raises: ConfigError where it has nothing to do, as Muon without a layer."""
    return build_optimizer(
        model,
        spec.learning_rate,
        spec.weight_decay,
        spec.adam_betas,
        spec.adam_epsilon,
        layer_decay,
        head_rate,
        optimizer=spec.optimizer,
        bias_correction=spec.adam_bias_correction,
        module_learning_rates=module_rates,
    )


def learning_rate_factor_at(spec: "PretrainSpec | RecipeSpec", step: int, num_steps: int, first_step: int = 0) -> float:
    """Factor on the peak learning rate in a step, counted from 0, of a run that begins at `first_step`."""
    decay_steps = None if spec.decay_ratio is None else round(spec.decay_ratio * num_steps)
    schedule, num_warmup = spec.learning_rate_schedule, round(spec.warmup_ratio * num_steps)
    return learning_rate_factor(step, num_steps, num_warmup, schedule, decay_steps, first_step)
