"""Lines of a plan that several kinds of runs share: sizes, memory, steps of pretraining, a task and its data."""

from collections.abc import Iterator, Sequence

from orchestrator.kinds.base import Fact
from orchestrator.progress import counted, size_text
from orchestrator.specs import PretrainSpec
from orchestrator.tasks import Task

BYTES_PER_PARAMETER = 16
"""float32 weights, gradients and AdamW's two moments."""
_SAVED_BYTES_PER_PARAMETER = 12
"""float32 weights and AdamW's two moments."""


def times_text(number: int, noun: str, seeds: Sequence[int]) -> str:
    """A number of things, and the seeds that each of them is tried with.

    >>> times_text(1, "point", [0]), times_text(1200, "point", [0, 1])
    ('1 point × 1 seed', '1,200 points × 2 seeds')
    """
    return f"{counted(number, noun)} × {counted(len(seeds), 'seed')}"


def memory_text(num_parameters: int) -> str:
    """Memory that training so many parameters takes."""
    return f"{size_text(num_parameters * BYTES_PER_PARAMETER)} and activations"


def host_copy_text(num_parameters: int) -> str:
    """Memory of the host that checkpoints of so many parameters are written from while a GPU trains on."""
    return f"{size_text(num_parameters * _SAVED_BYTES_PER_PARAMETER)} on the first worker's host"


def step_facts(spec: PretrainSpec) -> Iterator[Fact]:
    """The steps of each phase of a pretraining, and the tokens that it reads."""
    for length, steps in spec.phase_steps():
        yield "steps", f"{steps:,} of {spec.global_batch_size:,} examples up to {length} tokens"
    tokens = sum(length * steps * spec.global_batch_size for length, steps in spec.phase_steps())
    yield "tokens", f"at most {tokens:,}"


def task_facts(task: Task) -> Iterator[Fact]:
    """A labeled task and the size of its training split."""
    yield "task", f"{task.id} ({task.head}), ranked by {task.metric}"
    positive = task.type.positive_label(task)
    if positive is not None:
        yield "positive class", f"{positive}: f1 is its score, as it is the second label (task.labels says their order)"
    yield "data", f"{len(task.examples('train')):,} training examples; splits: {', '.join(task.splits)}"


def estimate_prefix(task: Task) -> str:
    """The word before a count of steps that is an estimate: a long passage gives several windows to train on."""
    return "about " if task.type.splits_long_examples else ""
