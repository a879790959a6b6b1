"""Runs that train a small model to answer as a large one does: on a task, or on a corpus with masked tokens."""

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.config import BertConfig
from bert_core.distillation import student_config
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.console import duration, size_text
from orchestrator.base.console.run_views import TrainingView
from orchestrator.base.errors import SpecError
from orchestrator.base.results import DistillResult, Event, MetricEvent, PretrainResult
from orchestrator.finetuning.distillation_job import check_decoder, check_widths
from orchestrator.finetuning.evaluation import with_labels_of
from orchestrator.finetuning.heads import HEADS
from orchestrator.finetuning.measured_steps import measure_examples
from orchestrator.finetuning.model_folder import load_task_definition
from orchestrator.finetuning.search_space import check_recipe
from orchestrator.kinds import checks, estimates
from orchestrator.kinds.base import AnyKind, DiskUse, Fact, Kind, MeasuredTime, Resources, RunContext
from orchestrator.kinds.pretrain import (
    PretrainKind,
    build_listener,
    build_request,
    pretraining_config,
)
from orchestrator.kinds.pretraining_estimates import measure_steps, step_facts
from orchestrator.kinds.resolved import Resolved, data_digests
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.specs import DistillSpec, PretrainSpec
from orchestrator.specs.recipe import LABEL_LOSS_FIELDS, RANDOM_FIELDS
from orchestrator.specs.references import RANDOM, STAGE_MARK, Product
from orchestrator.specs.task import Head, task_of
from orchestrator.storage import local_copy
from orchestrator.tasks.task import Task
from orchestrator.training.batch_order import Schedule
from orchestrator.training.checkpoints import Checkpoints

_PRETRAIN = PretrainKind()
R = TypeVar("R")
logger = logging.getLogger(__name__)


class _Distillation(Kind[DistillSpec, R]):
    """A student and its teacher, wherever they meet."""

    spec = DistillSpec
    products = frozenset({Product.TOKENIZER, Product.ENCODER, Product.TASK_MODEL, Product.SNAPSHOTS})
    resumes_midway = True

    @abstractmethod
    def start_config(self, spec: DistillSpec, inputs: Resolved) -> BertConfig | None:
        """Return the configuration of a student that takes no layers of its teacher; None if only the run decides."""

    def student_config(self, spec: DistillSpec, inputs: Resolved) -> BertConfig | None:
        """Return the student's configuration; None where only the run decides it. Raises: ConfigError."""
        if spec.num_hidden_layers is None:
            return self.start_config(spec, inputs)
        teacher = inputs.config(spec.teacher)
        return None if teacher is None else student_config(teacher, spec.num_hidden_layers)

    def check_student(self, spec: DistillSpec, inputs: Resolved, head: Head | None) -> None:
        """Check that the student has a fitting depth and width. Raises: SpecError, ConfigError."""
        student, teacher = self.student_config(spec, inputs), inputs.config(spec.teacher)
        if student is not None and teacher is not None:
            check_widths(spec, student, teacher, head)

    def facts(self, spec: DistillSpec, inputs: Resolved) -> Iterator[Fact]:
        student, teacher = self.student_config(spec, inputs), inputs.config(spec.teacher)
        if student is not None and teacher is not None:
            own, theirs = estimates.count_encoder_parameters(student), estimates.count_encoder_parameters(teacher)
            yield "parameters", f"{own:,} in the student, {theirs:,} in the teacher, and a small head each"
            yield "memory", f"{estimates.memory_text(own)}, and {size_text(4 * theirs)} of the teacher"

    def num_parameters(self, spec: DistillSpec, inputs: Resolved) -> int | None:
        student = self.student_config(spec, inputs)
        return None if student is None else estimates.count_encoder_parameters(student)

    def model_configs(self, spec: DistillSpec, inputs: Resolved) -> Iterator[BertConfig | None]:
        yield self.student_config(spec, inputs)

    def tokenizer_like(self, spec: DistillSpec, inputs: Resolved) -> Tokenizer | None:
        return inputs.tokenizer_like(spec.teacher)


class DistillKind(_Distillation[DistillResult]):
    """Distillation on a task that the teacher knows; on a corpus, with `pretraining` in the spec, see `for_spec`."""

    def for_spec(self, spec: DistillSpec) -> AnyKind:
        return self if spec.pretraining is None else _ON_CORPUS

    def check(self, spec: DistillSpec, inputs: Resolved) -> None:
        task, recipe, teacher = _task(spec, inputs), spec.recipe, spec.teacher
        _check_effects(spec)
        checks.check_positions("recipe.max_seq_length", recipe.max_seq_length, [teacher, recipe.init_from], inputs)
        if spec.num_hidden_layers is None:
            checks.check_layer_pooling([recipe.layer_pooling], [recipe.init_from], [recipe.size], inputs)
        checks.check_vectors(task, recipe, [teacher], [], inputs)
        check_recipe(recipe, task)
        _check_teacher(spec, task, inputs)
        checks.check_examples(task, inputs)
        for path in spec.unlabeled:
            task.without_labels(path)
        self.check_student(spec, inputs, task.head)

    def facts(self, spec: DistillSpec, inputs: Resolved) -> Iterator[Fact]:
        task, recipe = _task(spec, inputs), spec.recipe
        yield from estimates.task_facts(task)
        schedule = _schedule(spec, task)
        if spec.unlabeled:
            labeled = replace(task, train_fraction=recipe.train_fraction)
            num_unlabeled = schedule.num_examples - len(labeled.examples("train"))
            yield "texts without labels", f"{num_unlabeled:,}, which the teacher answers"
        yield "steps", f"{estimates.steps_text(task, schedule.num_steps)} of {recipe.batch_size:,} examples"
        if advice := estimates.short_training_advice(schedule):
            yield "note", f"the student has {advice}"
        yield from super().facts(spec, inputs)

    def measure_time(self, spec: DistillSpec, inputs: Resolved) -> MeasuredTime | None:
        """Measure steps of the student and of the teacher, whose answers take a share of a step's time."""
        student, teacher = self.student_config(spec, inputs), inputs.config(spec.teacher)
        tokenizer = inputs.tokenizer_like(spec.teacher)
        if student is None or teacher is None or tokenizer is None or estimates.trains_on_gpu(spec.execution.gpus):
            return None
        task, recipe = _task(spec, inputs), spec.recipe
        train, num_validation = task.examples("train"), len(task.examples("validation"))
        own, theirs = (
            measure_examples(task, train, recipe, config, tokenizer, spec.threads) for config in (student, teacher)
        )
        if own is None or theirs is None:
            return None
        schedule = _schedule(spec, task)
        num_examples = schedule.num_examples
        # Logits are kept after the first time; hidden states are computed again in each epoch.
        passes = bool(spec.objective.soft_targets_weight) + recipe.epochs * bool(spec.objective.hidden_cosine_weight)
        answers_s = theirs.answer_s * (passes * num_examples + num_validation)
        seconds = own.training_s(recipe, num_examples, num_validation) + answers_s
        return MeasuredTime(seconds, f"{schedule.num_steps:,} steps and the teacher's answers")

    def disk(self, spec: DistillSpec, inputs: Resolved) -> Iterator[DiskUse]:
        yield from estimates.fine_tuning_disk(self.num_parameters(spec, inputs), 1, 1, keep=Checkpoints.keep)

    def resources(self, spec: DistillSpec) -> Resources:
        return Resources.of_one_process(spec.execution.cpus, spec.execution.gpus)

    def start_config(self, spec: DistillSpec, inputs: Resolved) -> BertConfig | None:
        """Return the configuration of the model that the recipe starts from; random weights have the teacher's ids."""
        recipe, teacher = spec.recipe, inputs.config(spec.teacher)
        if recipe.init_from != RANDOM:
            return inputs.config(recipe.init_from)
        if teacher is None:
            return None
        return BertConfig.from_size(recipe.size, recipe.family, vocab_size=teacher.vocab_size)

    def run(self, spec: DistillSpec, inputs: Resolved, context: RunContext) -> DistillResult:
        from orchestrator.finetuning.distillation_launch import run_distillation  # Ray is loaded when a run starts

        task, recipe = _task(spec, inputs), spec.recipe
        status = StudentStatus(_schedule(spec, task).num_steps, recipe.epochs, recipe.batch_size)

        def on_event(event: Event) -> None:
            context.take_event(event)
            if isinstance(event, MetricEvent):
                line = status.line(event)
                context.progress.show(status.view)
                if line is not None:
                    logger.info(line)

        context.recorder.registry.trials.set_data(context.run_id, data_digests(task, task.splits))
        logger.info("the teacher answers the training split")
        result = run_distillation(
            spec,
            task=task,
            run_folder=context.run_folder,
            attempt=context.attempt,
            storage=context.settings.storage,
            resolve_name=inputs.folder,
            on_event=on_event,
            on_wait=context.refuse_if_superseded,
            allow_drift=context.allow_drift,
        )
        found, metric = result.metrics, result.metric
        scores = f"the student has {metric} {found[metric]:.4f}, its teacher {found[f'teacher.{metric}']:.4f}"
        logger.info(f"{result.task}: {scores}; {_comparison_line(found)}; after {duration(result.seconds)}")
        return result

    def record(self, result: DistillResult, run_id: str, recorder: Recorder) -> RunOutcome:
        for dataset in result.datasets:
            recorder.registry.datasets.record(run_id, dataset)
        recorder.record_final_metrics(run_id, result.best_step, "test", result.test_metrics)
        recorder.record_final_metrics(run_id, result.best_step, "validation", result.metrics)
        recorder.record_model(run_id, result.model)
        return RunOutcome(result.model.folder, result.predictions_path)

    def input_identity(self, spec: DistillSpec, inputs: Resolved) -> list[Any]:
        task = _task(spec, inputs)
        unlabeled = [["unlabeled", task.without_labels(path).fingerprint("train")] for path in spec.unlabeled]
        return super().input_identity(spec, inputs) + unlabeled


class _CorpusDistillation(_Distillation[PretrainResult]):
    """Pretraining of a student that fills masks as its teacher does."""

    def check(self, spec: DistillSpec, inputs: Resolved) -> None:
        pretraining = _pretraining(spec)
        longest = max(phase.max_seq_length for phase in pretraining.phases)
        checks.check_positions("pretraining.phases.max_seq_length", longest, [spec.teacher], inputs)
        start = {"init_from": spec.teacher} if spec.num_hidden_layers is not None else {}
        try:
            _PRETRAIN.check(pretraining.model_copy(update=start), inputs)
        except SpecError as error:
            raise SpecError(f"pretraining.{error}") from error
        checks.check_tokenizer(spec.teacher, pretraining.tokenizer, inputs)
        config = inputs.config(spec.teacher)
        if config is not None and config.causal_attention:
            raise SpecError(
                f"teacher {spec.teacher} reads from left to right and cannot show a student how to fill masks; "
                "name one that was pretrained with masks, or give a task in place of pretraining"
            )
        self.check_student(spec, inputs, head=None)

    def facts(self, spec: DistillSpec, inputs: Resolved) -> Iterator[Fact]:
        yield from step_facts(_pretraining(spec))
        yield from super().facts(spec, inputs)

    def measure_time(self, spec: DistillSpec, inputs: Resolved) -> MeasuredTime | None:
        """Measure steps of the student, and of the teacher, which reads every batch as well."""
        student, teacher = self.student_config(spec, inputs), inputs.config(spec.teacher)
        return None if teacher is None else measure_steps(_pretraining(spec), inputs, student, teacher)

    def disk(self, spec: DistillSpec, inputs: Resolved) -> Iterator[DiskUse]:
        yield from estimates.pretraining_disk(_pretraining(spec), self.num_parameters(spec, inputs), inputs)

    def resources(self, spec: DistillSpec) -> Resources:
        return _PRETRAIN.resources(_pretraining(spec))

    def start_config(self, spec: DistillSpec, inputs: Resolved) -> BertConfig | None:
        return pretraining_config(_pretraining(spec), inputs)

    def run(self, spec: DistillSpec, inputs: Resolved, context: RunContext) -> PretrainResult:
        from orchestrator.pretraining.distillation import distill_on_corpus  # Ray is loaded when a run starts

        pretraining = _pretraining(spec)
        request, listener = build_request(pretraining, inputs, context), build_listener(pretraining, context)
        result = distill_on_corpus(spec, request, inputs.folder("teacher", spec.teacher), listener)
        if "agreement" in result.metrics:
            logger.info(f"the student beside its teacher: {_comparison_line(result.metrics)}")
        return result

    def record(self, result: PretrainResult, run_id: str, recorder: Recorder) -> RunOutcome:
        return _PRETRAIN.record(result, run_id, recorder)


_ON_CORPUS = _CorpusDistillation()


def _pretraining(spec: DistillSpec) -> PretrainSpec:
    assert spec.pretraining is not None, "the spec asks for pretraining"
    return spec.pretraining


def _task(spec: DistillSpec, inputs: Resolved) -> Task:
    assert spec.task is not None, "the spec asks for a task"
    return inputs.task(spec.task)


def _schedule(spec: DistillSpec, task: Task) -> Schedule:
    """The steps over all examples; where a long one becomes several windows, the training has more."""
    unlabeled = (task.without_labels(path) for path in spec.unlabeled)
    labeled = replace(task, train_fraction=spec.recipe.train_fraction)
    num_examples = sum(len(one.examples("train")) for one in (labeled, *unlabeled))
    return Schedule(num_examples, spec.recipe.batch_size, spec.recipe.epochs, 1)


def _comparison_line(found: Mapping[str, float]) -> str:
    """A student's agreement with its teacher, and their sizes and speeds compared."""
    return (
        f"agreement {found['agreement']:.4f}, {found['parameter_ratio']:.0%} of the parameters, "
        f"{found['speed_ratio']:.2f} times as fast"
    )


def _check_effects(spec: DistillSpec) -> None:
    """Check that no field of the recipe is without effect; of runs by earlier versions some are. Raises: SpecError."""
    start, unread = spec.recipe.init_from, dict[str, str]()
    if spec.num_hidden_layers is not None:
        own = (*RANDOM_FIELDS, "layer_pooling", "num_lstm_layers")
        unread |= dict.fromkeys(own, "is the teacher's own with num_hidden_layers")
    elif start != RANDOM:
        unread |= dict.fromkeys(RANDOM_FIELDS, f"is for random weights, and init_from names {start}")
    if not spec.objective.labels_weight:
        unread |= dict.fromkeys(LABEL_LOSS_FIELDS, "is of the labels' loss, and objective.labels_weight is 0")
    for name in spec.recipe.changed(unread):
        raise SpecError(f"recipe.{name} {unread[name]}; leave it out")


def _check_teacher(spec: DistillSpec, task: Task, inputs: Resolved) -> None:
    """Check that a teacher has the head, the labels and the columns of a task, means the same class by f1, and has the
    decoder of the recipe.

    Raises: SpecError, CheckpointError.
    """
    teacher = spec.teacher
    if teacher.startswith(STAGE_MARK):
        labels = _labels_of_stage(teacher, task, inputs)
    else:
        folder = local_copy(inputs.folder("teacher", teacher), skip=(WEIGHTS_FILE,))
        labels = with_labels_of(load_task_definition(folder), task, teacher).labels
        Tokenizer.load(folder)
        check_decoder(spec, BertConfig.from_pretrained(folder))
        HEADS[task.head].check_objective(folder, task.objective)
    theirs, own = (task.target.positive_label(each) for each in (replace(task, labels=labels), task))
    if theirs != own:
        raise SpecError(
            f"task.labels: f1 is that of {own} in their order, and of {theirs} in that of teacher {teacher}, by which "
            f"its student is scored; list them as {', '.join(labels)}"
        )


def _labels_of_stage(teacher: str, task: Task, inputs: Resolved) -> tuple[str, ...]:
    """Labels of an earlier stage's task, which has the head, the labels and the columns of the one to teach.

    Raises: SpecError where it has not.
    """
    asked = task_of(inputs.stage(teacher))
    earlier = None if asked is None else inputs.task(asked)
    known = {} if earlier is None else _known_by(earlier)
    for what, own in _known_by(task).items():
        theirs = known.get(what, set())
        if theirs != own:
            raise SpecError(
                f"teacher {teacher} will know the {what} {', '.join(sorted(theirs)) or 'none'}; task {task.id} has "
                f"{', '.join(sorted(own)) or 'none'}: give both stages the same task"
            )
    assert earlier is not None, "every task has a head"
    return earlier.labels


def _known_by(task: Task) -> dict[str, set[str]]:
    return {"head": {task.head}, "labels": set(task.labels), "columns": set(task.columns.names)}


class StudentStatus:
    """Lines and the view of a training on a task; `num_steps` are those known before its examples are tokenized."""

    def __init__(self, num_steps: int, epochs: float, batch_size: int) -> None:
        self._epochs, self._batch_size = epochs, batch_size
        self.view = TrainingView(0, num_steps)
        """View for a terminal, after the newest event."""

    def line(self, event: MetricEvent) -> str | None:
        """Take in a measurement; returns the line for held-out scores, and None for what was measured in training."""
        if event.split == "validation":
            line = f"step {event.step:,}  {_scores_text(event.values)}"
            self.view = replace(self.view, held_out=f"step {event.step:,} held out: {_scores_text(event.values)}")
            return line
        num_steps = round(event.step * self._epochs / event.epoch) if event.epoch else self.view.num_steps
        speed = event.values["examples_per_s"]
        left_s = (num_steps - event.step) * self._batch_size / speed if speed else None
        measured = f"loss {event.values['loss']:.3f}", f"{speed:,.0f} examples/s"
        self.view = TrainingView(event.step, num_steps, measured, left_s, self.view.held_out)
        return None


def _scores_text(scores: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
