"""Parity of compiled layers, of CUDA graphs and of both together with the same model without them.

Errors and tolerances are those of `relative_errors`.
"""

import copy
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from benchmarks.gpu.graphed_step import NOT_AVAILABLE, FilledInputs, GraphedLearner, filled_loss
from benchmarks.gpu.model_losses import (
    ROUNDINGS_OF_MODEL,
    build_model,
    gradient_vector,
    loss_and_gradient,
    random_inputs,
)
from benchmarks.gpu.own_step import Learner, compile_model
from benchmarks.gpu.relative_errors import errors, with_verdict
from benchmarks.gpu.results import Value
from benchmarks.gpu.setting import Setting, precisions_on, product_precision
from bert_core.cuda_graphs import graph_maker
from bert_core.heads.pretraining import BertForPreTraining
from bert_core.layers.layer_norm import set_residual_dtype

EXECUTED_HEAD = "BertForPreTraining"
"""Head of the model that is compared."""


def compare_compiled(setting: Setting) -> dict[str, Value]:
    """Compare a model with compiled layers with itself without, both in bf16, the residual stream too.

    Both round, so that their difference has the roundings of two.
    """
    model = build_model("bert", EXECUTED_HEAD)
    set_residual_dtype(model, torch.bfloat16)
    inputs = random_inputs(model, EXECUTED_HEAD)

    def compiled() -> tuple[Tensor, Tensor]:
        own = copy.deepcopy(model).to(setting.device)
        compile_model(setting, own)
        return loss_and_gradient(own, EXECUTED_HEAD, inputs, setting.device, "bf16")

    eager = partial(loss_and_gradient, copy.deepcopy(model), EXECUTED_HEAD, inputs, setting.device, "bf16")
    values, gradients = ROUNDINGS_OF_MODEL
    return with_verdict(errors("bf16", eager, compiled, (2 * values, 2 * gradients)))


def compare_graphed(setting: Setting, is_compiled: bool = False) -> dict[str, Value]:
    """Compare a replayed step with the same kernels one by one, on the same filled batch, after a replay of another.

    Args:
        is_compiled: with compiled layers and a residual stream in bf16 on both sides, as in a run in bf16.
    """
    if graph_maker(setting.device) is None:
        return {"outcome": NOT_AVAILABLE}
    model = build_model("bert", EXECUTED_HEAD).to(setting.device)
    assert isinstance(model, BertForPreTraining)
    if is_compiled:
        set_residual_dtype(model, torch.bfloat16)
        compile_model(setting, model)
    inputs = FilledInputs.of(random_inputs(model, EXECUTED_HEAD), model.config.max_seq_length, setting.device)
    row: dict[str, Value] = {}
    for precision in ("bf16",) if is_compiled else precisions_on(setting.device):
        eager = partial(_kernel_by_kernel, model, inputs, precision)
        replayed = partial(_replayed, setting, model, inputs, precision)
        with product_precision(precision):
            row |= errors(precision, eager, replayed, ROUNDINGS_OF_MODEL)
    return with_verdict(row)


def _replayed(
    setting: Setting, model: BertForPreTraining, inputs: FilledInputs, precision: str
) -> tuple[Tensor, Tensor]:
    """Loss and gradient of a batch by a graph that has been replayed for another one before."""
    other = FilledInputs(inputs.bucket, [inputs.tensors[0].flip(0), *inputs.tensors[1:]])
    graphed = GraphedLearner(Learner(model, torch.optim.SGD(model.parameters()), setting.device))
    graphed.replay(other, precision)
    return graphed.replay(inputs, precision), gradient_vector(model)


def _kernel_by_kernel(model: BertForPreTraining, inputs: FilledInputs, precision: str) -> tuple[Tensor, Tensor]:
    """Loss and gradient of the same batch without a graph."""
    model.zero_grad(set_to_none=True)
    loss, value = filled_loss(model, inputs.bucket, precision, inputs.tensors)
    loss.backward()  # type: ignore[no-untyped-call]
    return value, gradient_vector(model)


EXECUTIONS: Mapping[str, Callable[[Setting], dict[str, Value]]] = {
    "compiled layers against eager ones": compare_compiled,
    "a CUDA graph against its kernels": compare_graphed,
    "compiled layers in a CUDA graph against compiled layers": partial(compare_graphed, is_compiled=True),
}
"""Comparisons, by the names of their rows."""
