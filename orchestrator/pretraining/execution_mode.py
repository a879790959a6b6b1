"""Execution mode of a run, chosen once: steps as single kernels or as CUDA graphs, layers plain or compiled.

Graphs and compiled layers draw other dropout and round otherwise, so checkpoints carry the choice, and a run that is
resumed goes on as it began. What the spec says against it is followed, with a warning.

With CUDA graphs, forward and backward are captured once for each bucket of sizes, and replayed. Everything else of a
step stays the same: counts and stop flags before, clipping and the optimizer after it. Gradients of several workers
leave after backward, and not during it. A worker's whole part of a batch goes through at a time; where memory runs out,
its smaller micro-batches are computed without graphs, which keep memory of their own.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bert_core.compiled_layers import compile_layers, restore_layers
from bert_core.cuda_graphs import Capture, ReplayedPasses, capture_on
from bert_core.examples.packing import PackedBatch, SizeBucket
from bert_core.micro_batches import first_line, is_out_of_memory
from bert_core.objectives.masked_lm import MaskedLM
from orchestrator.base.errors import RunFailedError
from orchestrator.base.settings import cache_folder
from orchestrator.cluster.torch_devices import computes_in_bf16
from orchestrator.pretraining.device_batch import DeviceBatch, filled_micro_batch
from orchestrator.pretraining.step import GlobalCounts, StepContext, add_sums, empty_totals, encoders_of, label_loss

MIN_STEPS_TO_COMPILE = 10_000
"""Steps of a run that `auto` compiles: compiling takes up to 20 s, so each of them has to become 2 ms shorter."""
_GRAPHS_FIELD, _GRAPHS_KEY = "execution.cuda_graphs", "steps_are_graphs"
_COMPILE_FIELD, _COMPILE_KEY = "execution.compile_layers", "layers_are_compiled"
Tell = Callable[[str], None]


class StepGraphs:
    """Forward and backward of one worker's steps as CUDA graphs."""

    def __init__(self, context: StepContext, capture: Capture) -> None:
        self._model, self._spec, self._objectives = context.model, context.spec, context.objectives
        self._passes = ReplayedPasses(context.model, context.worker.device, capture)

    def find_bucket(self, batch: PackedBatch) -> SizeBucket:
        """Find the sizes that a batch is filled up to."""
        return SizeBucket.of(batch, self._model.config.max_seq_length)

    def run(self, batch: DeviceBatch, counts: GlobalCounts, seed: int) -> Tensor:
        """Compute the gradients of a worker's part of a step, which was filled up; returns its totals.

        Raises: RunFailedError where the device cannot capture the step.
        """
        bucket = batch.bucket
        assert bucket is not None, "a step with graphs needs a batch that was filled up"
        inputs = [batch.values, torch.stack([*counts.num_predictions.values(), counts.num_tokens])]
        try:
            totals = self._passes.run(bucket, inputs, partial(self._compute, bucket), seed)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            reason = first_line(str(error))
            raise RunFailedError(f"the step's CUDA graph failed ({reason}); set {_GRAPHS_FIELD} to never") from error
        totals[-1].fill_(len(batch.host.input_ids))  # a graph cannot know the number of real tokens
        return totals

    def clear(self) -> None:
        """Give back the memory of what was captured."""
        self._passes.clear()

    def _compute(self, bucket: SizeBucket, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Loss and totals of a filled batch, without its number of tokens."""
        values, numbers = inputs
        *num_predictions, num_tokens = numbers.unbind()
        counts = GlobalCounts(dict(zip(self._objectives, num_predictions, strict=True)), num_tokens)
        sums, loss = label_loss(self._model, filled_micro_batch(values, bucket), self._spec, counts)
        totals = empty_totals(self._objectives, values.device)
        add_sums(totals, sums, num_tokens=0)
        return loss, totals


def choose_mode(
    context: StepContext, checkpoint: Mapping[str, Any] | None, tell: Tell, warn: Tell
) -> tuple[StepGraphs | None, dict[str, bool]]:
    """Choose a run's mode, and compile its layers where that is chosen. Returns graphs, and what checkpoints carry.

    Args:
        checkpoint: JSON of the checkpoint that the run goes on from; None where there is none.
        tell: told in a line of each choice that the spec leaves open, and how long compiling took.
        warn: told of a compiler that fails, and where the run does not go on as it began.

    Raises: RunFailedError when the compiler fails where the spec says `always`.
    """
    began = None if checkpoint is None else bool(checkpoint.get(_GRAPHS_KEY, False))
    reason = "they were so up to the checkpoint" if began is False else _reason_against_graphs(context)
    if context.spec.execution.cuda_graphs == "auto":
        tell(f"steps are single kernels: {reason}" if reason else "steps are CUDA graphs")
    if began and reason:
        warn(
            f"steps were CUDA graphs up to the checkpoint and are single kernels from here on ({reason}): last bits "
            "and dropout are others than in a run without this interruption"
        )
    graphs = None if reason else StepGraphs(context, capture_on(context.worker.device))
    is_compiled = choose_compilation(context, checkpoint, graphs is not None, tell, warn)
    return graphs, {_COMPILE_KEY: is_compiled, _GRAPHS_KEY: graphs is not None}


def _reason_against_graphs(context: StepContext) -> str | None:
    model, spec, device = context.model, context.spec, context.worker.device
    reasons = {
        f"{_GRAPHS_FIELD} is never": spec.execution.cuda_graphs == "never",
        f"the worker is on the {device.type}": device.type != "cuda",
        "the loss is a teacher's too": context.loss is not label_loss,
        "the batch is cut into parts": spec.micro_batch_size is not None or spec.micro_batch_tokens is not None,
        "layers are computed again in backward": spec.execution.activation_checkpointing == "layers",
        "the model has linear biases (ALiBi), which the host makes in each step": (
            model.config.position_embedding_type == "alibi"
        ),
        "each token is predicted, those that fill a batch up too": spec.token_objective != MaskedLM.name,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def choose_compilation(
    context: StepContext, checkpoint: Mapping[str, Any] | None, has_graphs: bool, tell: Tell, warn: Tell
) -> bool:
    """Compile a model's layers where that is the run's choice; returns whether they are compiled.

    Without CUDA graphs the host takes longer to launch compiled layers than the device gains (docs/performance.md).
    """
    spec = context.spec
    began = None if checkpoint is None else bool(checkpoint.get(_COMPILE_KEY, False))
    by_default = has_graphs and spec.num_steps >= MIN_STEPS_TO_COMPILE if began is None else began
    asked = spec.execution.compile_layers
    is_compiled = (asked == "always" or (asked == "auto" and by_default)) and _compile(context, tell, warn)
    if began is not None and began != is_compiled:
        was, now = ("compiled", "not compiled") if began else ("not compiled", "compiled")
        warn(
            f"the layers were {was} up to the checkpoint and are {now} from here on: last bits and dropout are others "
            f"than in a run without this interruption; {_COMPILE_FIELD} auto goes on as a run began, where it can"
        )
    return is_compiled


def _compile(context: StepContext, tell: Tell, warn: Tell) -> bool:
    """Compile; returns whether that succeeded. Raises: RunFailedError where it has to."""
    spec, device = context.spec, context.worker.device
    cache = os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "compiled"))
    try:
        dtype = torch.bfloat16 if computes_in_bf16(device, spec.precision) else None
        seconds = sum(compile_layers(encoder, dtype) for encoder in encoders_of(context.model))
    except Exception as error:  # of whatever kind: torch, the C++ compiler, Triton and the driver have their own
        for encoder in encoders_of(context.model):  # of which one may have been compiled
            restore_layers(encoder)
        reason = f"{type(error).__name__}: {first_line(str(error))}"
        if spec.execution.compile_layers == "always":
            raise RunFailedError(
                f"the layers could not be compiled on {device} ({reason}); set {_COMPILE_FIELD} to never, or give the "
                "machine a C++ compiler, and on a GPU a Triton that runs on it"
            ) from error
        warn(f"the layers could not be compiled ({reason}); they run as they are, which takes longer")
        return False
    tell(f"the layers are compiled, which took {seconds:.0f} s; kept for later attempts in {cache}")
    return True
