"""Runs that train a small model to answer as a large one does: on a task, or on a corpus with masked tokens."""

from collections.abc import Iterator
from typing import Any

from bert_core.config import BertConfig
from bert_core.distillation import student_config
from bert_core.text.tokenization import Tokenizer
from orchestrator.distillation.job import check_widths
from orchestrator.kinds.base import Fact, Kind, MeasuredTime, Resources, RunContext
from orchestrator.kinds.disk import DiskUse
from orchestrator.kinds.facts import memory_text
from orchestrator.kinds.pretrain import PretrainKind
from orchestrator.kinds.resolved import Resolved
from orchestrator.kinds.students import way_of
from orchestrator.models.parameter_counts import count_encoder_parameters
from orchestrator.progress import size_text
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.results import DistillResult, PretrainResult
from orchestrator.specs import DistillSpec
from orchestrator.specs.references import Product


class DistillKind(Kind[DistillSpec, DistillResult | PretrainResult]):
    """Distillation. With `task` the student is fine-tuned; with `pretraining` it is a pretraining with a teacher."""

    spec = DistillSpec
    products = frozenset({Product.TOKENIZER, Product.ENCODER, Product.TASK_MODEL, Product.SNAPSHOTS})

    def check(self, spec: DistillSpec, inputs: Resolved) -> None:
        """Check that the teacher knows the task or the tokens, and that the student has a fitting depth and width."""
        way = way_of(spec)
        way.check(inputs)
        student, teacher = _student_config(spec, inputs), inputs.config(spec.teacher)
        if student is not None and teacher is not None:
            check_widths(spec, student, teacher, way.head(inputs))

    def facts(self, spec: DistillSpec, inputs: Resolved) -> Iterator[Fact]:
        """Yield the task or the pretraining with its steps, and parameters and memory of student and teacher."""
        yield from way_of(spec).facts(inputs)
        student, teacher = _student_config(spec, inputs), inputs.config(spec.teacher)
        if student is not None and teacher is not None:
            own, theirs = count_encoder_parameters(student), count_encoder_parameters(teacher)
            yield "parameters", f"{own:,} in the student, {theirs:,} in the teacher, and a small head each"
            yield "memory", f"{memory_text(own)}, and {size_text(4 * theirs)} of the teacher"

    def disk(self, spec: DistillSpec, inputs: Resolved) -> Iterator[DiskUse]:
        """Yield what the student's training writes."""
        student = _student_config(spec, inputs)
        num_parameters = None if student is None else count_encoder_parameters(student)
        yield from way_of(spec).disk(num_parameters, inputs)

    def measure_time(self, spec: DistillSpec, inputs: Resolved) -> MeasuredTime | None:
        """Measure steps of the student, and of the teacher what it reads beside; None on GPUs."""
        return way_of(spec).measure_time(_student_config(spec, inputs), inputs)

    def resources(self, spec: DistillSpec) -> Resources:
        """Return what the student's process takes, or the workers of its pretraining."""
        return way_of(spec).resources()

    def run(self, spec: DistillSpec, inputs: Resolved, context: RunContext) -> DistillResult | PretrainResult:
        """Train the student, from where an earlier attempt ended, and compare it with its teacher."""
        return way_of(spec).run(inputs, context)

    def record(self, result: DistillResult | PretrainResult, run_id: str, recorder: Recorder) -> RunOutcome:
        """Write the data, both's scores, and the student."""
        if isinstance(result, PretrainResult):
            return PretrainKind().record(result, run_id, recorder)
        for dataset in result.datasets:
            recorder.registry.datasets.record(run_id, dataset)
        recorder.record_final_metrics(run_id, result.best_step, "test", result.test_metrics)
        recorder.record_final_metrics(run_id, result.best_step, "validation", result.metrics)
        recorder.record_model(run_id, result.model)
        return RunOutcome(result.model.folder, result.predictions_path)

    def input_identity(self, spec: DistillSpec, inputs: Resolved) -> list[Any]:
        """Return the identity of what every spec names, and of the files of texts without labels."""
        return super().input_identity(spec, inputs) + way_of(spec).input_identity(inputs)

    def model_configs(self, spec: DistillSpec, inputs: Resolved) -> Iterator[BertConfig | None]:
        """Yield the student's configuration."""
        yield _student_config(spec, inputs)

    def tokenizer_like(self, spec: DistillSpec, inputs: Resolved) -> Tokenizer | None:
        """Return the teacher's tokenizer, or one like it."""
        return inputs.tokenizer_like(spec.teacher)

    def snapshot_steps(self, spec: DistillSpec) -> tuple[int, ...]:
        """Return the steps that the spec lists for a pretraining."""
        return () if spec.pretraining is None else spec.pretraining.execution.snapshot_steps


def _student_config(spec: DistillSpec, inputs: Resolved) -> BertConfig | None:
    """The student's configuration; None where only the run decides it. Raises: ConfigError."""
    if spec.num_hidden_layers is None:
        return way_of(spec).start_config(inputs)
    teacher = inputs.config(spec.teacher)
    return None if teacher is None else student_config(teacher, spec.num_hidden_layers)
