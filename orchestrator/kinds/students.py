"""Ways to train a student, an object each for one spec: on a labeled task, or on a corpus with masked tokens.

`way_of` chooses between them once; what both share stands in `kinds/distill.py`.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.config import BertConfig
from bert_core.text.tokenization import Tokenizer
from orchestrator.distillation.progress_line import StudentStatus
from orchestrator.errors import SpecError
from orchestrator.finetuning.evaluation import with_labels_of
from orchestrator.finetuning.heads import HEADS
from orchestrator.finetuning.measured_steps import measure_examples
from orchestrator.finetuning.model_folder import FineTunedModel, read_record
from orchestrator.finetuning.search_space import check_recipe
from orchestrator.kinds.base import Fact, MeasuredTime, Resources, RunContext
from orchestrator.kinds.data_digests import data_digests
from orchestrator.kinds.disk import DiskUse, fine_tuning_disk, pretraining_disk
from orchestrator.kinds.facts import estimate_prefix, step_facts, task_facts
from orchestrator.kinds.messages import comparison_line, log_message
from orchestrator.kinds.pretrain import (
    PretrainKind,
    build_listener,
    build_request,
    longest_sequence,
    pretraining_config,
)
from orchestrator.kinds.pretrain_time import measure_steps
from orchestrator.kinds.resolved import Resolved
from orchestrator.kinds.start_checks import (
    check_layer_pooling,
    check_positions,
    check_tokenizer,
    check_vectors,
    trains_on_gpu,
)
from orchestrator.kinds.task_checks import check_examples, short_training_advice
from orchestrator.progress import duration
from orchestrator.results import DistillResult, DriftEvent, Event, MessageEvent, MetricEvent, PretrainResult
from orchestrator.specs import DistillSpec, PretrainSpec, TaskSpec
from orchestrator.specs.parts import task_of
from orchestrator.specs.references import RANDOM, STAGE_MARK
from orchestrator.specs.task import Head
from orchestrator.storage import local_copy
from orchestrator.tasks import Task
from orchestrator.training.batch_order import Schedule
from orchestrator.training.checkpoints import Checkpoints


def check_teacher(teacher: str, task: Task, inputs: Resolved) -> None:
    """Check that a teacher has the head, the labels and the columns of a task.

    Raises: SpecError, CheckpointError.
    """
    if teacher.startswith(STAGE_MARK):
        _check_stage(teacher, task, inputs)
        return
    folder = local_copy(inputs.folder("teacher", teacher), skip=(WEIGHTS_FILE,))
    config = BertConfig.from_pretrained(folder)
    record = read_record(folder, config)
    head = HEADS[record.head]
    model = head.model_type(config, seed=None)  # without storage: only its labels are asked for
    with_labels_of(FineTunedModel(model, Tokenizer.load(folder), record), task, teacher)
    head.check_objective(folder, task.objective)


def _check_stage(teacher: str, task: Task, inputs: Resolved) -> None:
    """Check that the task of an earlier stage has the head, the labels and the columns of the one to teach."""
    asked = task_of(inputs.stage(teacher))
    earlier = None if asked is None else inputs.task(asked)
    head = "no task" if earlier is None else earlier.head
    if earlier is None or head != task.head:
        raise SpecError(
            f"teacher {teacher} makes a model for {head}, task {task.id} needs one for {task.head}; "
            f"name a stage that fine-tunes for {task.head}"
        )
    pairs = {"labels": (earlier.labels, task.labels), "columns": (earlier.columns.names, task.columns.names)}
    for what, (theirs, own) in pairs.items():
        if set(theirs) != set(own):
            raise SpecError(
                f"teacher {teacher} will know the {what} {', '.join(theirs) or 'none'}; task {task.id} has "
                f"{', '.join(own) or 'none'}: give both stages the same task"
            )


_PRETRAIN = PretrainKind()
logger = logging.getLogger(__name__)


class StudentTraining(ABC):
    """A way to train a student; its methods answer as those of `Kind` with the same names."""

    @abstractmethod
    def check(self, inputs: Resolved) -> None:
        """Refuse data, or a teacher, that cannot be trained with."""

    @abstractmethod
    def facts(self, inputs: Resolved) -> Iterator[Fact]:
        """Yield the lines of a plan about the data and the steps."""

    @abstractmethod
    def disk(self, num_parameters: int | None, inputs: Resolved) -> Iterator[DiskUse]:
        """Yield what the run of a student with so many parameters writes to the storage."""

    @abstractmethod
    def measure_time(self, student: BertConfig | None, inputs: Resolved) -> MeasuredTime | None:
        """Return how long a student of a configuration would train on this machine's CPU, from a few steps."""

    @abstractmethod
    def resources(self) -> Resources:
        """Return what the run takes of the cluster."""

    @abstractmethod
    def start_config(self, inputs: Resolved) -> BertConfig | None:
        """Return the configuration of a student that takes no layers of its teacher; None if only the run decides."""

    @abstractmethod
    def run(self, inputs: Resolved, context: RunContext) -> DistillResult | PretrainResult:
        """Train the student, from where an earlier attempt ended, and compare it with its teacher."""

    def head(self, inputs: Resolved) -> Head | None:
        """Return the head that student and teacher share; None where they fill masks."""
        return None

    def input_identity(self, inputs: Resolved) -> list[Any]:
        """Return the identity of files that only this way reads."""
        return []


@dataclass(frozen=True)
class OnTask(StudentTraining):
    """Fine-tuning of a student on a task that its teacher knows."""

    spec: DistillSpec
    task: TaskSpec

    def check(self, inputs: Resolved) -> None:
        """Check that the teacher knows the task, and that the recipe fits both models."""
        task, recipe, teacher = inputs.task(self.task), self.spec.recipe, self.spec.teacher
        check_positions("recipe.max_seq_length", recipe.max_seq_length, [teacher, recipe.init_from], inputs)
        if self.spec.num_hidden_layers is None:
            check_layer_pooling([recipe.layer_pooling], [recipe.init_from], [recipe.size], inputs)
        check_vectors(task, recipe, [teacher], [], inputs)
        check_recipe(recipe, task)
        check_teacher(teacher, task, inputs)
        check_examples(task, inputs)
        for path in self.spec.unlabeled:
            task.without_labels(path)

    def facts(self, inputs: Resolved) -> Iterator[Fact]:
        """Yield the task, the texts without labels, and the steps."""
        task, recipe = inputs.task(self.task), self.spec.recipe
        yield from task_facts(task)
        schedule = self._schedule(task)
        if self.spec.unlabeled:
            labeled = task.with_train_fraction(recipe.train_fraction)
            num_unlabeled = schedule.num_examples - len(labeled.examples("train"))
            yield "texts without labels", f"{num_unlabeled:,}, which the teacher answers"
        yield "steps", f"{estimate_prefix(task)}{schedule.num_steps:,} of {recipe.batch_size:,} examples"
        if advice := short_training_advice(schedule):
            yield "note", f"the student has {advice}"

    def _schedule(self, task: Task) -> Schedule:
        """The steps over all examples; where a long one becomes several windows, the training has more."""
        unlabeled = (task.without_labels(path) for path in self.spec.unlabeled)
        labeled = task.with_train_fraction(self.spec.recipe.train_fraction)
        num_examples = sum(len(one.examples("train")) for one in (labeled, *unlabeled))
        return Schedule(num_examples, self.spec.recipe.batch_size, self.spec.recipe.epochs, 1)

    def measure_time(self, student: BertConfig | None, inputs: Resolved) -> MeasuredTime | None:
        """Measure steps of the student and of the teacher, whose answers take a share of a step's time."""
        spec, teacher = self.spec, inputs.config(self.spec.teacher)
        tokenizer = inputs.tokenizer_like(spec.teacher)
        if student is None or teacher is None or tokenizer is None or trains_on_gpu(spec.execution.gpus):
            return None
        task, recipe = inputs.task(self.task), spec.recipe
        train, num_validation = task.examples("train"), len(task.examples("validation"))
        how = task, train, recipe
        own = measure_examples(*how, student, tokenizer, spec.threads)
        theirs = measure_examples(*how, teacher, tokenizer, spec.threads)
        if own is None or theirs is None:
            return None
        schedule = self._schedule(task)
        num_examples = schedule.num_examples
        # Logits are kept after the first time; hidden states are computed again in each epoch.
        passes = bool(spec.objective.soft_targets_weight) + recipe.epochs * bool(spec.objective.hidden_cosine_weight)
        answers_s = theirs.answer_s * (passes * num_examples + num_validation)
        seconds = own.training_s(recipe, num_examples, num_validation) + answers_s
        return MeasuredTime(seconds, f"{schedule.num_steps:,} steps and the teacher's answers")

    def disk(self, num_parameters: int | None, inputs: Resolved) -> Iterator[DiskUse]:
        """Yield checkpoints and the student."""
        yield from fine_tuning_disk(num_parameters, 1, 1, keep=Checkpoints.keep)

    def resources(self) -> Resources:
        """Return what the student's process takes."""
        return Resources.of_one_process(self.spec.execution.cpus, self.spec.execution.gpus)

    def start_config(self, inputs: Resolved) -> BertConfig | None:
        """Return the configuration of the model that the recipe starts from; random weights have the teacher's ids."""
        recipe, teacher = self.spec.recipe, inputs.config(self.spec.teacher)
        if recipe.init_from != RANDOM:
            return inputs.config(recipe.init_from)
        if teacher is None:
            return None
        return BertConfig.from_size(recipe.size, recipe.family, vocab_size=teacher.vocab_size)

    def run(self, inputs: Resolved, context: RunContext) -> DistillResult:
        """Fine-tune the student in a process of its own."""
        task = inputs.task(self.task)
        from orchestrator.distillation.launch import run_distillation  # Ray is loaded when a run starts

        recipe = self.spec.recipe
        status = StudentStatus(self._schedule(task).num_steps, recipe.epochs, recipe.batch_size)
        context.recorder.registry.trials.set_data(context.run_id, data_digests(task, task.splits))
        logger.info("the teacher answers the training split")
        result = run_distillation(
            self.spec,
            task=task,
            run_folder=context.run_folder,
            attempt=context.attempt,
            storage=context.settings.storage,
            resolve_name=inputs.folder,
            on_event=_event_callback(context, status),
            on_wait=context.refuse_if_superseded,
            allow_drift=context.allow_drift,
        )
        found, metric = result.metrics, result.metric
        scores = f"the student has {metric} {found[metric]:.4f}, its teacher {found[f'teacher.{metric}']:.4f}"
        logger.info(f"{result.task}: {scores}; {comparison_line(found)}; after {duration(result.seconds)}")
        return result

    def head(self, inputs: Resolved) -> Head:
        """Return the task's head."""
        return inputs.task(self.task).head

    def input_identity(self, inputs: Resolved) -> list[Any]:
        """Return the identity of the files of texts without labels."""
        task = inputs.task(self.task)
        return [["unlabeled", task.without_labels(path).fingerprint("train")] for path in self.spec.unlabeled]


@dataclass(frozen=True)
class OnCorpus(StudentTraining):
    """Pretraining of a student that fills masks as its teacher does."""

    spec: DistillSpec
    pretraining: PretrainSpec

    def check(self, inputs: Resolved) -> None:
        """Check that the pretraining can run, and that the teacher reads its sequences and its tokens."""
        _PRETRAIN.check(self.pretraining, inputs)
        longest = longest_sequence(self.pretraining)
        check_positions("pretraining.phases.max_seq_length", longest, [self.spec.teacher], inputs)
        check_tokenizer(self.spec.teacher, self.pretraining.tokenizer, inputs)
        config = inputs.config(self.spec.teacher)
        if config is not None and config.causal_attention:
            raise SpecError(
                f"teacher {self.spec.teacher} reads from left to right and cannot show a student how to fill masks; "
                "name one that was pretrained with masks, or give a task in place of pretraining"
            )

    def facts(self, inputs: Resolved) -> Iterator[Fact]:
        """Yield the steps and the tokens."""
        yield from step_facts(self.pretraining)

    def disk(self, num_parameters: int | None, inputs: Resolved) -> Iterator[DiskUse]:
        """Yield what the pretraining writes."""
        yield from pretraining_disk(self.pretraining, num_parameters, inputs)

    def measure_time(self, student: BertConfig | None, inputs: Resolved) -> MeasuredTime | None:
        """Measure steps of the student, and of the teacher, which reads every batch as well."""
        teacher = inputs.config(self.spec.teacher)
        return None if teacher is None else measure_steps(self.pretraining, inputs, student, teacher)

    def resources(self) -> Resources:
        """Return what the workers of the pretraining take."""
        return _PRETRAIN.resources(self.pretraining)

    def start_config(self, inputs: Resolved) -> BertConfig | None:
        """Return the configuration that the pretraining starts with."""
        return pretraining_config(self.pretraining, inputs)

    def run(self, inputs: Resolved, context: RunContext) -> PretrainResult:
        """Pretrain the student beside its teacher."""
        from orchestrator.distillation.masked_tokens import distill_on_corpus  # Ray is loaded when a run starts

        result = distill_on_corpus(
            self.spec,
            build_request(self.pretraining, inputs, context),
            inputs.folder("teacher", self.spec.teacher),
            build_listener(self.pretraining, context),
        )
        if "agreement" in result.metrics:
            logger.info(f"the student beside its teacher: {comparison_line(result.metrics)}")
        return result


def way_of(spec: DistillSpec) -> StudentTraining:
    """The way that a spec asks for."""
    if spec.pretraining is not None:
        return OnCorpus(spec, spec.pretraining)
    assert spec.task is not None, "the spec asks for a task or for pretraining"
    return OnTask(spec, spec.task)


def _event_callback(context: RunContext, status: StudentStatus) -> Callable[[Event], None]:
    """A callback that records what the student's process reports, and shows how far it is and its scores."""

    def on_event(event: Event) -> None:
        context.refuse_if_superseded()
        context.record_events([event])
        if isinstance(event, MetricEvent):
            line = status.line(event)
            context.progress.show(status.view)
            if line is not None:
                logger.info(line)
        elif isinstance(event, MessageEvent):
            log_message(event)
        elif isinstance(event, DriftEvent):
            context.mark_drift(event.step, event.differences)

    return on_event
