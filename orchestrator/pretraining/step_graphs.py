"""CUDA graphs of a run's steps: forward and backward are captured once for each bucket of sizes, and replayed.

Everything else of a step stays as it is: counts and votes before, the exchange of gradients, clipping and the optimizer
after it. A worker's whole part of a batch goes through at a time. Where memory runs out, its smaller micro-batches are
computed without graphs.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from bert_core.cuda_graphs import Graph, ReplayedPasses, graph_maker
from bert_core.examples.packing import PackedBatch
from bert_core.examples.size_buckets import SizeBucket
from bert_core.heads import BertForPreTraining
from bert_core.micro_batches import is_out_of_memory
from orchestrator.errors import RunFailedError
from orchestrator.pretraining.device_batch import DeviceBatch, filled_micro_batch
from orchestrator.pretraining.loss import GlobalCounts, label_loss
from orchestrator.pretraining.meter import add_sums, empty_totals
from orchestrator.specs import PretrainSpec

FIELD = "execution.cuda_graphs"
_MANY_GRAPHS = 8
"""Graphs beyond which a person is told: lengths of one phase give a few buckets."""
logger = logging.getLogger(__name__)


class StepGraphs:
    """Forward and backward of one worker's steps.

    Args:
        objectives: names of the objectives of the run.
        warn: told once where sizes differ so much that there are many graphs.
    """

    def __init__(
        self,
        model: BertForPreTraining,
        spec: PretrainSpec,
        objectives: tuple[str, ...],
        new_graph: Callable[[], Graph],
        warn: Callable[[str], None] = logger.warning,
    ) -> None:
        self._warn: Callable[[str], None] | None = warn
        self._model, self._spec, self._objectives = model, spec, objectives
        self._passes = ReplayedPasses(model.parameters(), new_graph)

    def fill(self, batch: PackedBatch) -> PackedBatch:
        """Fill up a batch to the sizes of its bucket."""
        return self._bucket(batch).fill(batch)

    def run(self, batch: DeviceBatch, counts: GlobalCounts, seed: int) -> Tensor:
        """Compute the gradients of a worker's part of a step, which was filled up; returns its totals.

        Raises: RunFailedError where the device cannot capture the step.
        """
        assert batch.filled is not None, "a step with graphs needs a batch that was filled up"
        bucket = self._bucket(batch.host)
        inputs = [batch.values, torch.stack([*counts.num_predictions.values(), counts.num_tokens])]
        try:
            totals = self._passes.run(bucket, inputs, partial(self._compute, bucket), seed)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            reason = str(error).strip().partition("\n")[0]
            raise RunFailedError(f"the step's CUDA graph failed ({reason}); set {FIELD} to false") from error
        if self._passes.num_captured > _MANY_GRAPHS and self._warn is not None:
            self._warn(
                f"batches have had more than {_MANY_GRAPHS} sizes, each with a CUDA graph that took time to capture "
                f"and keeps memory of the GPU; where either runs short, set {FIELD} to false"
            )
            self._warn = None
        totals[-1].fill_(len(batch.host.input_ids))  # a graph cannot know the number of real tokens
        return totals

    def forget(self) -> None:
        """Give back the memory of what was captured, for parts of a batch, which are computed without graphs."""
        self._passes.clear()

    def _bucket(self, batch: PackedBatch) -> SizeBucket:
        return SizeBucket.of(batch, self._model.config.max_seq_length)

    def _compute(self, bucket: SizeBucket, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Loss and totals of a filled batch, without its number of tokens."""
        values, numbers = inputs
        *num_predictions, num_tokens = numbers.unbind()
        counts = GlobalCounts(dict(zip(self._objectives, num_predictions, strict=True)), num_tokens)
        sums, loss = label_loss(self._model, filled_micro_batch(values, bucket), self._spec, counts)
        totals = empty_totals(self._objectives, values.device)
        add_sums(totals, sums, num_tokens=0)
        return loss, totals


def build_graphs(
    spec: PretrainSpec,
    model: BertForPreTraining,
    device: torch.device,
    objectives: tuple[str, ...],
    warn: Callable[[str], None] = logger.warning,
) -> StepGraphs | None:
    """Build the graphs of a run; None where its spec does not ask for them.

    Raises: RunFailedError where it asks, and the model or the device cannot have them.
    """
    if not spec.execution.cuda_graphs:
        return None
    new_graph = graph_maker(device)
    if new_graph is None:
        raise RunFailedError(
            f"CUDA graphs are for NVIDIA GPUs, and the worker is on the {device}; set {FIELD} to false"
        )
    if model.config.position_embedding_type == "alibi":
        raise RunFailedError(
            "the model has linear biases (ALiBi), which the host makes in each step, and a CUDA graph cannot see the "
            f"host; set {FIELD} to false"
        )
    return StepGraphs(model, spec, objectives, new_graph, warn)
