"""Sides that the GPU benchmark compares: a training step here, in five forms, and in transformers, in two.

Transformers' step is that of its users: bf16 autocast, fused AdamW, eager or compiled.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from benchmarks._pretraining_batches import pack_batch, padded_loss
from benchmarks.gpu.own_step import GraphedSteps, Learner, build_learner, compile_model, own_loss, to_device
from benchmarks.gpu.roofline import ALL_LEVERS, BatchShape, Ceilings, predict_ms, predict_peer_ms
from benchmarks.gpu.setting import Setting
from bert_core.config import BertConfig
from bert_core.heads.pretraining import BertForPreTraining

HERE, HERE_COMPILED, HERE_DROPOUT = "here", "here, layers compiled", "here, attention dropout 0.1"
HERE_GRAPHS, HERE_COMPILED_GRAPHS = "here, CUDA graphs", "here, layers compiled, CUDA graphs"
PEER, PEER_COMPILED = "transformers", "transformers compiled"
_MAX_GRAPHS = 64
"""Graphs that the compiler may make of one function: those of all sizes and widths."""

_AS_WRITTEN = replace(ALL_LEVERS, compiled_layers=False)
LEVERS = {
    HERE: _AS_WRITTEN,
    HERE_GRAPHS: _AS_WRITTEN,
    HERE_DROPOUT: _AS_WRITTEN,
    HERE_COMPILED: ALL_LEVERS,
    HERE_COMPILED_GRAPHS: ALL_LEVERS,
}
"""Levers of `roofline` that each side here has."""
COMPILED_HERE = tuple(name for name, levers in LEVERS.items() if levers.compiled_layers)
GRAPHED_HERE = (HERE_GRAPHS, HERE_COMPILED_GRAPHS)

Batch = dict[str, Tensor]


@dataclass(eq=False)
class Side:
    """A model that takes turns with others, with what was measured of it."""

    name: str
    learner: Learner
    steps: Sequence[Callable[[], Tensor]]
    """Function that makes a step with a batch and returns the loss, for each batch."""
    times_ms: list[float] = field(default_factory=list)
    host_times_ms: list[float] = field(default_factory=list)
    """Time of a step until the host has launched all of it, in the same rounds."""
    peak_bytes: int | None = None
    """Memory of weights, moments and the first steps, at its largest; None without a card."""
    loss: float | None = None
    """Mean loss of steps before the timed ones, by which sides are seen to compute the same; None before these."""

    def make_steps(self) -> list[Tensor]:
        """Make a step with each batch. Returns the losses, which stay on the device."""
        return [step() for step in self.steps]


def build_side_model(setting: Setting, name: str, config: BertConfig) -> Learner:
    """Build the model of a side, from the same weights for all, with an attention dropout of 0 but for HERE_DROPOUT."""
    config = replace(config, attention_probs_dropout_prob=0.1 if name == HERE_DROPOUT else 0.0)
    is_rounded = name in LEVERS and LEVERS[name].bf16_residual
    own = build_learner(config, setting.device, residual_dtype=torch.bfloat16 if is_rounded else None)
    refuse_more_graphs()
    if name in COMPILED_HERE:
        compile_model(setting, own.model)
    if name in (PEER, PEER_COMPILED):
        assert isinstance(own.model, BertForPreTraining)
        backend = setting.choose("inductor", "eager") if name == PEER_COMPILED else None
        return build_peer(own.model, setting.device, backend)
    return own


def build_peer(own: BertForPreTraining, device: torch.device, compile_backend: str | None = None) -> Learner:
    """Build the model in transformers with the same weights; compiled where a backend is named."""
    import transformers  # seconds long, and missing on some machines

    config = transformers.BertConfig(**own.config.to_dict())
    model: Any = transformers.BertForPreTraining(config)
    loaded = model.load_state_dict(own.weight_names.to_file(own.state_dict()), strict=False)
    missing = set(loaded.missing_keys) - set(model._tied_weights_keys)
    assert not missing, f"transformers' model has weights that the one here lacks: {', '.join(sorted(missing))}"
    model = model.to(device).train()
    if compile_backend is not None:
        model = torch.compile(model, backend=compile_backend, dynamic=False)  # all its batches have one shape
    return Learner(model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), device)


def peer_loss(learner: Learner, batch: dict[str, Tensor]) -> Callable[[], Tensor]:
    """Make the function that computes the loss of padded rows."""
    return lambda: padded_loss(learner.model, batch)


def refuse_more_graphs() -> None:
    """Make it an error, never a silent step without compilation, that the compiler makes too many graphs."""
    torch._dynamo.config.recompile_limit = _MAX_GRAPHS
    torch._dynamo.config.fail_on_recompile_limit_hit = True


def build_side(setting: Setting, name: str, learner: Learner, batches: Sequence[Batch]) -> Side:
    """Put the batches on the device in the form that a side reads."""
    if name in (PEER, PEER_COMPILED):
        moved = [{key: value.to(setting.device) for key, value in batch.items()} for batch in batches]
        return Side(name, learner, [partial(learner.step, peer_loss(learner, batch)) for batch in moved])
    if name in GRAPHED_HERE:
        graphed = GraphedSteps(learner)
        return Side(name, learner, [graphed.step_of(pack_batch(batch)) for batch in batches])
    packed = [to_device(pack_batch(batch), setting.device) for batch in batches]
    return Side(name, learner, [partial(learner.step, own_loss(learner, inputs)) for inputs in packed])


def refusal(name: str) -> str | None:
    """Reason why a side cannot be built on this machine; None where it can."""
    is_missing = name in (PEER, PEER_COMPILED) and find_spec("transformers") is None
    return "transformers is not installed" if is_missing else None


def shape_of(batch: Batch) -> BatchShape:
    lengths = batch["attention_mask"].sum(dim=1).tolist()
    return BatchShape(tuple(lengths), batch["input_ids"].shape[1], int((batch["labels"] >= 0).sum()))


def predicted_ms(name: str, config: BertConfig, shapes: Sequence[BatchShape], ceilings: Ceilings) -> float:
    """Milliseconds that are predicted for a step of a side, in the mean over batches."""
    return statistics.mean(
        predict_ms(config, shape, LEVERS[name], ceilings, is_graphed=name in GRAPHED_HERE)
        if name in LEVERS
        else predict_peer_ms(config, shape, name == PEER_COMPILED, ceilings)
        for shape in shapes
    )
