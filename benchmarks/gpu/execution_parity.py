"""Parity of compiled layers with the same model without them.

Errors and tolerances are those of `relative_errors`.
"""

import copy
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from benchmarks.gpu.model_losses import (
    ROUNDINGS_OF_MODEL,
    build_model,
    loss_and_gradient,
    random_inputs,
)
from benchmarks.gpu.own_step import compile_model
from benchmarks.gpu.relative_errors import errors, with_verdict
from benchmarks.gpu.results import Value
from benchmarks.gpu.setting import Setting

EXECUTED_HEAD = "BertForPreTraining"
"""Head of the model that is compared."""


def compare_compiled(setting: Setting) -> dict[str, Value]:
    """Compare a model with compiled layers with itself without, both in bf16, the residual stream too.

    Both round, so that their difference has the roundings of two.
    """
    model = build_model("bert", EXECUTED_HEAD)
    model.bert.residual_dtype = torch.bfloat16
    inputs = random_inputs(model, EXECUTED_HEAD)

    def compiled() -> tuple[Tensor, Tensor]:
        own = copy.deepcopy(model).to(setting.device)
        compile_model(setting, own)
        return loss_and_gradient(own, EXECUTED_HEAD, inputs, setting.device, "bf16")

    eager = partial(loss_and_gradient, copy.deepcopy(model), EXECUTED_HEAD, inputs, setting.device, "bf16")
    values, gradients = ROUNDINGS_OF_MODEL
    return with_verdict(errors("bf16", eager, compiled, (2 * values, 2 * gradients)))


EXECUTIONS: Mapping[str, Callable[[Setting], dict[str, Value]]] = {
    "compiled layers against eager ones": compare_compiled,
}
"""Comparisons, by the names of their rows."""
