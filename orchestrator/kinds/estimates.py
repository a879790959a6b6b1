"""Estimates that several kinds share: parameters, memory, disk, steps of a training on a task."""

from collections.abc import Iterable, Iterator

import torch
from torch import nn

from bert_core.config import BertConfig
from bert_core.model import BertModel
from orchestrator.base.console import counted, size_text
from orchestrator.cluster.torch_devices import SLOW_BF16, computes_in_bf16, has_bf16_cpu
from orchestrator.kinds.base import DiskUse, Fact, is_narrow
from orchestrator.kinds.corpus import token_store_disk
from orchestrator.kinds.resolved import Resolved
from orchestrator.pretraining.step import new_model
from orchestrator.specs import PretrainSpec
from orchestrator.tasks.task import Task
from orchestrator.training.batch_order import Schedule

_BYTES_PER_WEIGHT = 4
_BYTES_PER_SAVED_PARAMETER = 12
"""float32 weights and AdamW's two moments."""
_BYTES_PER_PARAMETER = 16
"""float32 weights, gradients and AdamW's moments; a checkpoint on a task has the best weights in place of gradients."""
FEW_STEPS = 50
"""Steps of a fine-tuning below which it can hardly have learned anything, whatever its learning rate."""


def count_encoder_parameters(config: BertConfig) -> int:
    return _count(BertModel(config, seed=None))


def count_pretraining_parameters(spec: PretrainSpec, config: BertConfig) -> int:
    """Parameters of a model to pretrain, its heads and its generator included."""
    return _count(new_model(spec, config, seed=None))


def _count(module: nn.Module) -> int:
    """Parameters of a module, for which without a seed no memory is allocated."""
    return sum(parameter.numel() for parameter in module.parameters())


def memory_text(num_parameters: int) -> str:
    return f"{size_text(num_parameters * _BYTES_PER_PARAMETER)} and activations"


def fine_tuning_disk(num_parameters: int | None, num_trainings: int, num_models: int, keep: int) -> Iterator[DiskUse]:
    """Yield what trainings on a task write: models, and checkpoints of those that run at the same time.

    Args:
        num_parameters: of the largest model; nothing is known without it.
        num_trainings: trainings that run at the same time.
        num_models: models that are there at the same time.
        keep: number of checkpoints that a training keeps.
    """
    if num_parameters is not None:
        kept = num_trainings * (keep + 1)  # a new one is whole before the old one goes
        yield DiskUse("checkpoints", kept * num_parameters * _BYTES_PER_PARAMETER)
        yield DiskUse("models", num_models * num_parameters * _BYTES_PER_WEIGHT)


def pretraining_disk(spec: PretrainSpec, num_parameters: int | None, inputs: Resolved) -> Iterator[DiskUse]:
    """Yield what a pretraining leaves: its text as tokens; checkpoints, snapshots and model where their size is known.

    Raises: CorpusError, TokenizerError.
    """
    if num_parameters is not None:
        kept = spec.execution.keep_checkpoints + 1  # a new one is whole before the oldest one goes
        yield DiskUse("checkpoints", kept * num_parameters * _BYTES_PER_SAVED_PARAMETER)
        num_snapshots = len(spec.execution.snapshot_steps)
        num_bytes = (1 + num_snapshots) * num_parameters * _BYTES_PER_WEIGHT
        num_bytes += num_snapshots * num_parameters * _BYTES_PER_SAVED_PARAMETER * spec.execution.snapshot_optimizer
        yield DiskUse("model and snapshots", num_bytes)
    yield from token_store_disk(spec, inputs)


def trains_on_gpu(asked: str | float) -> bool:
    """Whether a training on this machine would take a GPU: where it is asked for, or `auto` finds one."""
    return asked not in ("cpu", 0) and (asked != "auto" or torch.cuda.is_available())


def precision_facts(
    precisions: Iterable[object], asked: str | float, configs: Iterable[BertConfig | None]
) -> Iterator[Fact]:
    """Yield what `auto` comes to in a training on this machine, and where bf16 would be slow on its CPU."""
    on_gpu = trains_on_gpu(asked)
    if "auto" in precisions and on_gpu and not torch.cuda.is_available():
        yield "precision", "bf16 on GPUs from Ampere on, else fp32 (auto)"
    elif "auto" in precisions:
        has_units = computes_in_bf16(torch.device("cuda" if on_gpu else "cpu"), "auto")
        in_bf16 = has_units and (on_gpu or not is_narrow(configs))
        yield "precision", f"{'bf16' if in_bf16 else 'fp32'} on this machine (auto)"
    if "bf16" in precisions and not on_gpu and not has_bf16_cpu():
        yield "precision", SLOW_BF16


def task_facts(task: Task) -> Iterator[Fact]:
    yield "task", f"{task.id} ({task.head}), ranked by {task.metric}"
    positive = task.target.positive_label(task)
    if positive is not None:
        yield "positive class", f"{positive}: f1 is its score, as it is the second label (task.labels says their order)"
    yield "data", f"{len(task.examples('train')):,} training examples; splits: {', '.join(task.splits)}"


def steps_text(task: Task, num_steps: int) -> str:
    """A count of steps, which is an estimate where a long passage gives several windows to train on."""
    return f"{'about ' if task.type.splits_long_examples else ''}{num_steps:,}"


def short_training_advice(schedule: Schedule) -> str | None:
    """Advice on a training of few steps: how many it has, and what to change; None where there are enough of them."""
    if schedule.num_steps >= FEW_STEPS:
        return None
    return (
        f"{counted(schedule.num_steps, 'step')} only, with recipe.batch_size {schedule.batch_size:,} and "
        f"{schedule.num_examples:,} training examples; lower it, or raise recipe.epochs"
    )
