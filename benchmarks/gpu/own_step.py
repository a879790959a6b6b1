"""A training step as it is done here: the one place of the GPU benchmark that knows the model's training interface.

The shipped form of a run in bf16 has a residual stream in bf16 too, and compiled layers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from benchmarks._pretraining_batches import OBJECTIVES, loss_of
from benchmarks.gpu.setting import SMALL_FIRST_ROWS, Setting, in_precision
from bert_core.compiled_layers import NUM_FIRST_ROWS, compile_layers
from bert_core.config import BertConfig
from bert_core.cuda_graphs import Work, capture_on
from bert_core.examples.packing import PackedBatch
from bert_core.heads.pretraining import BertForPreTraining, PretrainingLabels
from bert_core.optimization import build_optimizer
from bert_core.packed_sequences import PackedSequences
from orchestrator.pretraining.device_batch import DeviceBatch
from orchestrator.pretraining.execution_mode import StepGraphs
from orchestrator.pretraining.step import GlobalCounts

MAX_GRADIENT_NORM = 1.0
PackedInputs = tuple[PackedSequences, PretrainingLabels]


@dataclass(frozen=True)
class Learner:
    """A model with its optimizer, on a device."""

    model: nn.Module
    optimizer: Optimizer
    device: torch.device

    def step(self, loss: Callable[[], Tensor], precision: str = "bf16") -> Tensor:
        """Make one step: forward, backward, clipping, update. The loss stays on the device."""
        with in_precision(precision, self.device):
            value = loss()
        value.backward()  # type: ignore[no-untyped-call]  # outside of autocast, as in a training run
        self.update()
        return value.detach()

    def update(self) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), MAX_GRADIENT_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    @property
    def num_bytes(self) -> int:
        weights = list(self.model.parameters())
        moments = [v for state in self.optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]
        return sum(tensor.numel() * tensor.element_size() for tensor in (*weights, *moments))


def build_learner(
    config: BertConfig,
    device: torch.device,
    learning_rate: float = 1e-4,
    seed: int = 0,
    residual_dtype: torch.dtype | None = None,
) -> Learner:
    """Build the model with weights drawn from a seed, and its optimizer."""
    model = BertForPreTraining.from_config(config, seed=seed).to(device).train()
    model.bert.residual_dtype = residual_dtype
    return Learner(model, build_optimizer(model, learning_rate), device)


def compile_model(setting: Setting, model: nn.Module) -> float:
    """Compile a model's layers for bf16, as a training run does. Returns the seconds it took."""
    assert isinstance(model, BertForPreTraining)
    # The front half of the compiler is tried everywhere; making code for a CPU takes a minute.
    backend, num_rows = setting.choose(("inductor", NUM_FIRST_ROWS), ("eager", SMALL_FIRST_ROWS))
    return compile_layers(model.bert, torch.bfloat16, backend, num_rows)


def own_loss(learner: Learner, inputs: PackedInputs) -> Callable[[], Tensor]:
    """Make the function that computes the loss of a packed batch."""
    assert isinstance(learner.model, BertForPreTraining)
    return lambda: loss_of(learner.model, *inputs)  # type: ignore[arg-type]


class GraphedSteps:
    """Steps of a learner in bf16 as a training run's CUDA graphs; off CUDA the kernels are called one by one."""

    def __init__(self, learner: Learner) -> None:
        worker, spec = SimpleNamespace(device=learner.device), SimpleNamespace(precision="bf16")
        context: Any = SimpleNamespace(model=learner.model, spec=spec, worker=worker, objectives=OBJECTIVES)
        self.graphs = StepGraphs(context, capture_on(learner.device) if learner.device.type == "cuda" else _run_at_once)
        self._learner, self._num_steps = learner, 0

    def step_of(self, inputs: PackedInputs) -> Callable[[], Tensor]:
        """Make the function that makes a step with a batch on the CPU; the loss stays on the device."""
        seqs, labels = inputs
        fields = (seqs.input_ids, seqs.token_type_ids, seqs.cu_seqlens, *vars(labels).values())
        packed = PackedBatch(*(tensor.numpy().astype(np.int32) for tensor in fields))
        batch = DeviceBatch.copied(packed, self._learner.device, self.graphs.find_bucket(packed))
        numbers = torch.tensor([len(packed.masked_positions), packed.num_sequences, len(packed.input_ids)])
        *predictions, num_tokens = numbers.float().to(self._learner.device).unbind()
        counts = GlobalCounts(dict(zip(OBJECTIVES, predictions, strict=True)), num_tokens)

        def step() -> Tensor:
            self._num_steps += 1
            totals = self.graphs.run(batch, counts, seed=self._num_steps)
            self._learner.update()
            return totals[0] / totals[2] + totals[3] / totals[5]

        return step


def _run_at_once(work: Work) -> Work:
    work()
    return work


def to_device(inputs: PackedInputs, device: torch.device) -> PackedInputs:
    seqs, labels = inputs
    return seqs.to(device), PretrainingLabels(*(tensor.to(device) for tensor in vars(labels).values()))


def packed_inputs(batch: PackedBatch, device: torch.device) -> PackedInputs:
    """Turn a batch of examples into the model's input on a device."""
    seqs = PackedSequences.from_numpy(batch.input_ids, batch.token_type_ids, batch.cu_seqlens)
    arrays = (batch.masked_positions, batch.masked_labels, batch.sentence_labels)
    return to_device((seqs, PretrainingLabels(*(torch.from_numpy(array).long() for array in arrays))), device)
