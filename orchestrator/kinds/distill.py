"""Runs that train a small model to answer as a large one does: on a task, or on a corpus with masked tokens."""

from collections.abc import Callable, Iterator
from typing import Any

from bert_core.config import BertConfig
from bert_core.distillation import student_config
from orchestrator.distillation.student import check_widths
from orchestrator.finetuning.recipe_checks import check_recipe
from orchestrator.kinds.base import Fact, Kind, Resources, RunContext
from orchestrator.kinds.facts import estimate_prefix, memory_text, size_text, step_facts, task_facts
from orchestrator.kinds.messages import comparison_line, message_line
from orchestrator.kinds.pretrain import (
    PretrainKind,
    build_request,
    longest_sequence,
    pretraining_config,
    training_callbacks,
)
from orchestrator.kinds.resolved import Resolved
from orchestrator.kinds.start_checks import check_layer_pooling, check_positions, check_tokenizer
from orchestrator.kinds.teachers import check_teacher
from orchestrator.models.sizes import count_encoder_parameters
from orchestrator.progress import duration
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.results import DistillResult, Event, MessageEvent, MetricEvent, PretrainResult
from orchestrator.specs import DistillSpec, PretrainSpec, TaskSpec
from orchestrator.specs.references import RANDOM, Product
from orchestrator.tasks import Task
from orchestrator.training.batch_order import Schedule

_PRETRAIN = PretrainKind()


class DistillKind(Kind[DistillSpec, DistillResult | PretrainResult]):
    """Distillation. With `task` the student is fine-tuned; with `pretraining` it is a pretraining with a teacher."""

    spec = DistillSpec
    products = frozenset({Product.TOKENIZER, Product.ENCODER, Product.TASK_MODEL, Product.SNAPSHOTS})

    def check(self, spec: DistillSpec, inputs: Resolved) -> None:
        """See that the teacher knows the task or the tokens, and that the student is small, and wide, as it must be."""
        if spec.pretraining is not None:
            _PRETRAIN.check(spec.pretraining, inputs)
            longest = longest_sequence(spec.pretraining)
            check_positions("pretraining.phases.max_seq_length", longest, [spec.teacher], inputs)
            check_tokenizer(spec.teacher, spec.pretraining.tokenizer, inputs)
        if spec.task is not None:
            _check_task(spec, inputs.task(spec.task), inputs)
        student, teacher = _student_config(spec, inputs), inputs.config(spec.teacher)
        if student is not None and teacher is not None:
            check_widths(spec, student, teacher, None if spec.task is None else inputs.task(spec.task).head)

    def facts(self, spec: DistillSpec, inputs: Resolved) -> Iterator[Fact]:
        """Yield the task or the pretraining with its steps, and parameters and memory of student and teacher."""
        if spec.task is not None:
            yield from _task_facts(spec, inputs.task(spec.task))
        if spec.pretraining is not None:
            yield from step_facts(spec.pretraining)
        student, teacher = _student_config(spec, inputs), inputs.config(spec.teacher)
        if student is not None and teacher is not None:
            own, theirs = count_encoder_parameters(student), count_encoder_parameters(teacher)
            yield "parameters", f"{own:,} in the student, {theirs:,} in the teacher, and a small head each"
            yield "memory", f"{memory_text(own)}, and {size_text(4 * theirs)} of the teacher"

    def resources(self, spec: DistillSpec) -> Resources:
        """Return what the student's process takes, or the workers of its pretraining."""
        if spec.pretraining is not None:
            return _PRETRAIN.resources(spec.pretraining)
        return Resources.of_one_process(spec.execution.cpus, spec.execution.gpus)

    def run(self, spec: DistillSpec, inputs: Resolved, context: RunContext) -> DistillResult | PretrainResult:
        """Train the student, from where an earlier attempt ended, and compare it with its teacher."""
        if spec.pretraining is not None:
            return _run_on_corpus(spec, spec.pretraining, inputs, context)
        assert spec.task is not None, "the spec asks for a task or for pretraining"
        return _run_on_task(spec, spec.task, inputs, context)

    def record(self, result: DistillResult | PretrainResult, run_id: str, recorder: Recorder) -> RunOutcome:
        """Write the data, both's scores, and the student."""
        if isinstance(result, PretrainResult):
            return _PRETRAIN.record(result, run_id, recorder)
        for dataset in result.datasets:
            recorder.record_dataset(run_id, dataset)
        recorder.record_final_metrics(run_id, result.best_step, "test", result.test_metrics)
        recorder.record_final_metrics(run_id, result.best_step, "validation", result.metrics)
        recorder.record_model(run_id, result.model)
        return RunOutcome(result.model.folder, result.predictions_path)

    def input_identity(self, spec: DistillSpec, inputs: Resolved) -> list[Any]:
        """Return the identity of what every spec names, and of the files of texts without labels."""
        identity = super().input_identity(spec, inputs)
        if spec.task is not None:
            task = inputs.task(spec.task)
            identity += [["unlabeled", task.without_labels(path).fingerprint("train")] for path in spec.unlabeled]
        return identity

    def model_configs(self, spec: DistillSpec, inputs: Resolved) -> Iterator[BertConfig | None]:
        """Yield the student's configuration."""
        yield _student_config(spec, inputs)

    def snapshot_steps(self, spec: DistillSpec) -> tuple[int, ...]:
        """Return the steps that the spec lists for a pretraining."""
        return () if spec.pretraining is None else spec.pretraining.execution.snapshot_steps


def _check_task(spec: DistillSpec, task: Task, inputs: Resolved) -> None:
    recipe = spec.recipe
    check_positions("recipe.max_seq_length", recipe.max_seq_length, [spec.teacher, recipe.init_from], inputs)
    if spec.num_hidden_layers is None:
        check_layer_pooling([recipe.layer_pooling], [recipe.init_from], [recipe.size], inputs)
    check_recipe(recipe, task.head)
    check_teacher(spec.teacher, task, inputs)
    task.file("train")
    for path in spec.unlabeled:
        task.without_labels(path)


def _task_facts(spec: DistillSpec, task: Task) -> Iterator[Fact]:
    yield from task_facts(task)
    num_unlabeled = sum(len(task.without_labels(path).examples("train")) for path in spec.unlabeled)
    if num_unlabeled:
        yield "texts without labels", f"{num_unlabeled:,}, which the teacher answers"
    num_examples = len(task.examples("train")) + num_unlabeled
    num_steps = Schedule(num_examples, spec.recipe.batch_size, spec.recipe.epochs, 1).num_steps
    yield "steps", f"{estimate_prefix(task)}{num_steps:,} of {spec.recipe.batch_size:,} examples"


def _student_config(spec: DistillSpec, inputs: Resolved) -> BertConfig | None:
    """The student's configuration; None where only the run decides it. Raises: ConfigError."""
    teacher = inputs.config(spec.teacher)
    if spec.num_hidden_layers is not None:
        return None if teacher is None else student_config(teacher, spec.num_hidden_layers)
    if spec.pretraining is not None:
        return pretraining_config(spec.pretraining, inputs)
    if spec.recipe.init_from != RANDOM:
        return inputs.config(spec.recipe.init_from)
    if teacher is None:
        return None
    return BertConfig.from_size(spec.recipe.size, spec.recipe.family, vocab_size=teacher.vocab_size)


def _run_on_task(spec: DistillSpec, task: TaskSpec, inputs: Resolved, context: RunContext) -> DistillResult:
    from orchestrator.distillation.launch import run_distillation  # Ray is loaded when a run starts

    context.progress.status("the teacher answers the training split")
    result = run_distillation(
        spec,
        task=inputs.task(task),
        run_folder=context.run_folder,
        attempt=context.attempt,
        storage=context.settings.storage,
        resolve_name=inputs.folder,
        on_event=_event_callback(context),
    )
    found, metric = result.metrics, result.metric
    scores = f"the student has {metric} {found[metric]:.4f}, its teacher {found[f'teacher.{metric}']:.4f}"
    context.progress.log(f"{result.task}: {scores}; {comparison_line(found)}; after {duration(result.seconds)}")
    return result


def _event_callback(context: RunContext) -> Callable[[Event], None]:
    """A callback that records what the student's process reports, and shows its scores."""

    def on_event(event: Event) -> None:
        context.refuse_if_superseded()
        context.recorder.record_events(context.run_id, [event])
        if isinstance(event, MetricEvent) and event.split == "validation":
            scores = "  ".join(f"{name} {value:.4f}" for name, value in event.values.items())
            context.progress.status(f"step {event.step:,}  {scores}")
        elif isinstance(event, MessageEvent):
            context.progress.log(message_line(event))

    return on_event


def _run_on_corpus(
    spec: DistillSpec, pretraining: PretrainSpec, inputs: Resolved, context: RunContext
) -> PretrainResult:
    from orchestrator.distillation.masked_tokens import distill_on_corpus  # Ray is loaded when a run starts

    result = distill_on_corpus(
        spec,
        build_request(pretraining, inputs, context),
        inputs.folder("teacher", spec.teacher),
        **training_callbacks(pretraining, context),
    )
    if "agreement" in result.metrics:
        context.progress.log(f"the student beside its teacher: {comparison_line(result.metrics)}")
    return result
