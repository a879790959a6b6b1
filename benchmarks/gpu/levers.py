"""Levers of a training step, each switched off alone: how much longer the step is without it.

All steps are CUDA graphs, so that they take the device's time and not the host's.

The step with all levers and those without one of them take turns. What a lever saves depends on which others are
pulled; here it is what would be lost without it today.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from types import MethodType
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks._attention_choice import forced_attention
from benchmarks._pretraining_batches import make_batch
from benchmarks.gpu.ceilings import measured_ceilings
from benchmarks.gpu.own_step import Learner, build_learner, compile_model
from benchmarks.gpu.results import NOT_REACHED, Report, Row, Value
from benchmarks.gpu.roofline import ALL_LEVERS, CROSS_ENTROPY_ROWS, Ceilings, Levers, predict_ms
from benchmarks.gpu.setting import SMALL_SIZE, Budget, Setting
from benchmarks.gpu.sides import HERE_GRAPHS, Batch, Side, build_side, refuse_more_graphs, shape_of
from benchmarks.gpu.step_time import COMPILE_LAYERS_S, Unmeasured, attempt, computes_the_same, take_turns
from bert_core.config import BertConfig
from bert_core.heads.pretraining import BertForPreTraining
from bert_core.kernels import linear_cross_entropy
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences

NONE = "none"
"""Name of the step that has all levers."""
LEVER_NAMES = tuple(lever.name for lever in fields(Levers))
_COMPILED_ANEW = (NONE, "bf16_residual")
"""Steps whose layers the compiler has to make; the others take what it made for the first one."""
_NUM_BATCHES = 3


def measure(setting: Setting, budget: Budget, report: Report) -> Iterator[Row]:
    """Compare the step with all levers and the steps without one: a row each, on full rows."""
    size, width, slots = setting.choose(("base", 128, 32_768), (SMALL_SIZE, 16, 64))
    config = setting.build_config(size)
    batches = [make_batch(config, slots // width, width, 1.0, seed) for seed in range(_NUM_BATCHES)]
    sides: list[Side] = []
    for name in (NONE, *LEVER_NAMES):
        if budget.left_s <= (setting.choose(COMPILE_LAYERS_S, 0) if name in _COMPILED_ANEW else 0):
            yield named(size, width, name) | {"outcome": NOT_REACHED}
            continue
        made = attempt(name, partial(prepare, setting, config, name, batches))
        if isinstance(made, Unmeasured):
            yield named(size, width, name) | {"outcome": made.outcome, "ok": False}
        else:
            sides.append(made)
    for failed in take_turns(setting, budget, sides):
        yield named(size, width, failed.side) | {"outcome": failed.outcome, "ok": False}
    for side in sides:
        yield named(size, width, side.name) | figures(config, batches, side, sides[0], measured_ceilings(report))


def named(size: str, width: int, name: str) -> dict[str, Value]:
    return {"size": size, "S": width, "fill": 1.0, "without": name}


def levers_without(name: str) -> Levers:
    """All levers but one; all of them for NONE."""
    return ALL_LEVERS if name == NONE else replace(ALL_LEVERS, **{name: False})


def prepare(setting: Setting, config: BertConfig, name: str, batches: Sequence[Batch]) -> Side:
    """Build the step without a lever, and make the first steps; the last of them give its loss."""
    learner = build_without(setting, config, name)
    side = replace(build_side(setting, HERE_GRAPHS, learner, batches), name=name)
    if name == "fused_cross_entropy":
        side.steps = [partial(_in_block_cross_entropy, step) for step in side.steps]
    if name == "varlen":
        side.steps = [partial(_on_padded_rows, step) for step in side.steps]
    side.make_steps()
    side.loss = statistics.mean(float(loss) for loss in side.make_steps())
    return side


def build_without(setting: Setting, config: BertConfig, name: str) -> Learner:
    """Build the model and optimizer of a step without a lever, from the same weights for all."""
    levers = levers_without(name)
    learner = build_learner(replace(config, attention_probs_dropout_prob=0.0 if levers.varlen else 0.1), setting.device)
    model = learner.model
    assert isinstance(model, BertForPreTraining)
    if not levers.fused_adamw:
        for group in learner.optimizer.param_groups:
            group.update(fused=False, foreach=True)
    model.bert.residual_dtype = torch.bfloat16 if levers.bf16_residual else None
    if not levers.last_layer_rows:
        model.bert.encode = MethodType(_encode_all_rows, model.bert)  # type: ignore[method-assign]
    if levers.compiled_layers:
        refuse_more_graphs()
        compile_model(setting, model)
    return learner


def _encode_all_rows(
    bert: BertModel, seqs: PackedSequences, rows: Tensor | None = None, words: Tensor | None = None
) -> Tensor:
    """Output of the whole last layer, of which the rows are taken that are read: (T, H) or (R, H)."""
    hidden = BertModel.encode(bert, seqs, words=words)
    return hidden if rows is None else hidden.index_select(0, rows)


def _in_block_cross_entropy(step: Callable[[], Tensor]) -> Tensor:
    """Make a step whose loss is computed eagerly, block by block, as it was for every device."""
    with (
        patch.object(linear_cross_entropy, "_fused_kernel", return_value=None),
        patch.object(linear_cross_entropy, "_block_rows", return_value=CROSS_ENTROPY_ROWS),
    ):
        return step()


def _on_padded_rows(step: Callable[[], Tensor]) -> Tensor:
    """Make a step whose attention computes padding too."""
    with forced_attention("fused"):
        return step()


def figures(
    config: BertConfig, batches: Sequence[Batch], side: Side, whole: Side, ceilings: Ceilings | None
) -> dict[str, Value]:
    """Figures of the step without a lever, and what it takes longer than the one with all."""
    if not side.times_ms:
        return {"outcome": NOT_REACHED}
    found: dict[str, Value] = {"ms": statistics.median(side.times_ms)}
    if whole.name == NONE:
        pairs = zip(side.times_ms, whole.times_ms, strict=True)
        found["ms longer"] = statistics.median(own - other for own, other in pairs)
    if ceilings is not None:
        without, with_all = (
            statistics.mean(predict_ms(config, shape_of(batch), levers, ceilings, is_graphed=True) for batch in batches)
            for levers in (levers_without(side.name), ALL_LEVERS)
        )
        found |= {"predicted ms": without, "predicted ms longer": without - with_all}
        found["measured / predicted"] = statistics.median(side.times_ms) / without
    return found | {"loss": side.loss, "ok": computes_the_same(side, whole)}
