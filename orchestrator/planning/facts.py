"""What a plan tells of a spec: text, steps, trials, parameters, memory and disk."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orchestrator.corpus.input_files import find_files
from orchestrator.planning.model_sizes import Networks
from orchestrator.specs import CorpusSpec, DistillSpec, PretrainSpec, Spec, SweepSpec, TextSource, TokenizerSpec

if TYPE_CHECKING:
    from orchestrator.tasks import Task

BYTES_PER_PARAMETER = 16
"""float32 weights, gradients and AdamW's two moments."""
BYTES_PER_SAVED_PARAMETER = 12


def stage_facts(spec: Spec, networks: Networks) -> Iterator[tuple[str, str]]:
    """What a spec does and needs, by name. Raises: TaskDataError for a task's file that cannot be read and so on."""
    yield "kind", spec.kind
    for source in text_sources(spec):
        files = find_files(source)
        plural = "" if len(files) == 1 else "s"
        yield "text", f"{len(files):,} file{plural}, {_size(sum(file.num_bytes for file in files))} as stored"
    if isinstance(spec, TokenizerSpec):
        yield "vocabulary", f"at most {spec.vocab_size:,} entries"
    if isinstance(spec, PretrainSpec):
        yield from _pretraining_facts(spec, networks)
    if isinstance(spec, SweepSpec):
        yield from _sweep_facts(spec, networks)
    if isinstance(spec, DistillSpec):
        yield from _distillation_facts(spec, networks)


def _pretraining_facts(spec: PretrainSpec, networks: Networks) -> Iterator[tuple[str, str]]:
    yield from _step_facts(spec)
    num_parameters = networks.pretraining_parameters(spec)
    if num_parameters is not None:
        yield "parameters", f"{num_parameters:,}"
        yield "memory of a worker", _memory_text(num_parameters)
        kept = spec.execution.keep_checkpoints * num_parameters * BYTES_PER_SAVED_PARAMETER
        yield "disk", f"{_size(kept)} of checkpoints, and the token store (about the text's size)"


def _sweep_facts(spec: SweepSpec, networks: Networks) -> Iterator[tuple[str, str]]:
    from orchestrator.finetuning.search_space import grid_points, random_points, value_bounds
    from orchestrator.tasks import load_task
    from orchestrator.training.batch_order import Schedule

    task = load_task(spec.task)
    num_examples = len(task.examples("train"))
    yield from _task_facts(task)
    points = spec.trials or 0
    if spec.search != "optuna":
        points = sum(1 for _ in (grid_points if spec.search == "grid" else random_points)(spec))
    yield "trials", f"{points * len(spec.seeds):,} ({points:,} points × {len(spec.seeds)} seeds)"
    (small, large), (short, long) = value_bounds(spec, "batch_size"), value_bounds(spec, "epochs")
    fewest, most = (
        Schedule(num_examples, int(batch_size), epochs, 1).num_steps
        for batch_size, epochs in ((large, short), (small, long))
    )
    yield "steps of a trial", f"{_about(task)}{fewest:,}" + (f" to {most:,}" if most > fewest else "")
    num_parameters = networks.trial_parameters(spec)
    if num_parameters is not None:
        yield "parameters", f"{num_parameters:,}, and a small head"
        yield "memory of a trial", _memory_text(num_parameters)
    if spec.execution.max_concurrent_trials:
        yield "trials at a time", f"at most {spec.execution.max_concurrent_trials}"


def _distillation_facts(spec: DistillSpec, networks: Networks) -> Iterator[tuple[str, str]]:
    from orchestrator.tasks import load_task
    from orchestrator.training.batch_order import Schedule

    if spec.task is not None:
        task, recipe = load_task(spec.task), spec.recipe
        yield from _task_facts(task)
        num_unlabeled = sum(len(task.without_labels(path).examples("train")) for path in spec.unlabeled)
        if num_unlabeled:
            yield "texts without labels", f"{num_unlabeled:,}, which the teacher answers"
        num_examples = len(task.examples("train")) + num_unlabeled
        num_steps = Schedule(num_examples, recipe.batch_size, recipe.epochs, 1).num_steps
        yield "steps", f"{_about(task)}{num_steps:,} of {recipe.batch_size:,} examples"
    if spec.pretraining is not None:
        yield from _step_facts(spec.pretraining)
    student, teacher = networks.distillation_parameters(spec)
    if student is not None and teacher is not None:
        yield "parameters", f"{student:,} in the student, {teacher:,} in the teacher, and a small head each"
        yield "memory", f"{_memory_text(student)}, and {_size(4 * teacher)} of the teacher"


def _step_facts(spec: PretrainSpec) -> Iterator[tuple[str, str]]:
    for length, steps in spec.phase_steps():
        yield "steps", f"{steps:,} of {spec.global_batch_size:,} examples up to {length} tokens"
    tokens = sum(length * steps * spec.global_batch_size for length, steps in spec.phase_steps())
    yield "tokens", f"at most {tokens:,}"


def _task_facts(task: "Task") -> Iterator[tuple[str, str]]:
    yield "task", f"{task.id} ({task.head}), ranked by {task.metric}"
    yield "data", f"{len(task.examples('train')):,} training examples; splits: {', '.join(task.splits)}"


def _about(task: "Task") -> str:
    """A long passage gives more than one window to train on."""
    return "about " if task.type.splits_long_examples else ""


def _memory_text(num_parameters: int) -> str:
    return f"{_size(num_parameters * BYTES_PER_PARAMETER)} and activations"


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.2f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:,.1f} MB"


def text_sources(spec: Spec) -> list[TextSource]:
    """The text that a spec reads."""
    if isinstance(spec, DistillSpec):
        return [] if spec.pretraining is None else [spec.pretraining.corpus]
    return [spec.corpus] if isinstance(spec, TokenizerSpec | CorpusSpec | PretrainSpec) else []
