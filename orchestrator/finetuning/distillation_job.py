"""One distillation in one process, without Ray: teacher and student from their folders, training, both compared.

Files, in the run's folder:
    model                    the student at its best step, as any fine-tuned model
    checkpoints.json         where an interrupted training goes on, as in pretraining; goes when all is done
    predictions.jsonl        its predictions on the validation split
    predictions/test.jsonl   and on the test split, where there is one
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from bert_core.config import BertConfig
from bert_core.constants import AskedPrecision
from bert_core.distillation import student_of
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import SpecError
from orchestrator.base.results import DatasetResult, DistillResult, Event
from orchestrator.cluster.torch_devices import autocast, choose_device
from orchestrator.finetuning.batches import make_batch
from orchestrator.finetuning.building import build_model, check_fit
from orchestrator.finetuning.distillation_loss import DistillationLoss
from orchestrator.finetuning.evaluation import evaluate_model, score_model, with_labels_of
from orchestrator.finetuning.heads import HEADS, HeadModel
from orchestrator.finetuning.heads.base import Windows
from orchestrator.finetuning.logits import compute_logits
from orchestrator.finetuning.model_folder import FineTunedModel, load_fine_tuned
from orchestrator.finetuning.training_checkpoints import CheckpointedTraining
from orchestrator.finetuning.trial import baseline_metrics, prepare_trial_features, train_and_save
from orchestrator.specs import RecipeSpec
from orchestrator.specs.distill import DistillSpec
from orchestrator.specs.recipe import SILENT_FIELDS
from orchestrator.specs.task import Head
from orchestrator.storage import join, local_copy
from orchestrator.storage.model_folder import describe_model, weights_digest
from orchestrator.tasks.feature_cache import dataset_result
from orchestrator.tasks.features import Features, join_features
from orchestrator.tasks.scoring import kept_rows, majority_baseline, write_prediction_rows
from orchestrator.tasks.task import Task
from orchestrator.training.checkpoints import Checkpoints
from orchestrator.training.clocks import clock_of

_TEST_BATCH_SIZE = 64
_MAX_TIMED_WINDOWS = 1024
"""Windows that the speed is measured on at most, evenly spread over the split."""
_TIMED_BATCH_SIZE, _MAX_TIMED_TOKENS = 32, 16_384


@dataclass(frozen=True)
class DistillJob:
    """The value that travels to the student's process. Paths are absolute."""

    spec: DistillSpec
    task: Task
    teacher_folder: str
    init_folder: str | None
    """Folder of the model that `recipe.init_from` names"""
    run_folder: str
    cache: str
    """Folder of tokenized features on the storage."""
    unlabeled: tuple[str, ...] = ()
    """Files of texts that only the teacher answers"""
    attempt: int = 1
    allow_drift: bool = False
    """Whether to go on from a checkpoint although what the run reads has changed since"""
    use_gpu: bool = False
    """Whether the student's process has a GPU, whole or a share."""


def distill(
    job: DistillJob, report: Callable[[Sequence[Event]], None], on_saved: Callable[[int], None] = lambda step: None
) -> DistillResult:
    """Train the student and compare it with its teacher; calls `report` after each evaluation.

    `on_saved` is told the step of each checkpoint; raising ends the distillation, which goes on from there.

    The same job gives the same weights, bit by bit, as fine-tuning does; measured speeds differ. A job that was
    interrupted goes on from its last evaluation, and ends with the same weights as well.

    Raises: SpecError, CheckpointError, TokenizerError, TaskDataError where teacher, student and task do not go
        together; DivergedError; what `report` and `on_saved` raise.
    """
    begun_at = perf_counter()
    spec, recipe = job.spec, job.spec.recipe
    torch.set_num_threads(spec.threads)
    name = "cuda" if job.use_gpu else "cpu"
    device = choose_device(name, recipe.allow_tf32, recipe.precision)
    teacher_folder = local_copy(job.teacher_folder)
    teacher = load_fine_tuned(teacher_folder)
    task = with_labels_of(teacher.task, job.task, spec.teacher)
    HEADS[task.head].set_objective(teacher.model, task.objective)
    student = _build_student(spec, teacher, task, job.init_folder).to(device)
    teacher.model.to(device)
    train, validation = (
        prepare_trial_features(task, split, recipe, teacher.tokenizer, job.cache) for split in ("train", "validation")
    )
    unlabeled = [_read_unlabeled(job, task.without_labels(path), teacher.tokenizer) for path in job.unlabeled]
    options = teacher.record.options.with_recipe(recipe)
    theirs = score_model(teacher.model, task, validation, "validation", options, recipe.precision, calibrates=False)
    texts = [train, *(features for features, _ in unlabeled)]
    seen = join_features(texts)
    read = [part.fingerprint for part in (train, validation, *texts[1:])]
    identity = {"the spec": spec.fingerprint(), "the data": read, "the teacher": weights_digest(str(teacher_folder))}
    checkpoint = CheckpointedTraining(
        Checkpoints(job.run_folder, job.attempt),
        identity,
        report,
        on_saved,
        details={"the spec": spec.identity_values()},
        allow_drift=job.allow_drift,
    )
    loss = DistillationLoss(teacher.model, seen, spec.objective, recipe.precision, train.num_examples)
    best, predictions_path = train_and_save(
        student, teacher.tokenizer, task, seen, validation, recipe, job.run_folder, checkpoint, loss
    )
    student.to(device)
    if HEADS[task.head].gives_vectors:
        agreement = vector_agreement(student, teacher.model, validation, recipe.precision)
    else:
        agreement = task.target.agreement(best.scored.predictions, theirs.predictions)
    return DistillResult(
        task=task.id,
        metric=task.metric,
        model=describe_model(join(job.run_folder, "model"), task.head),
        best_step=best.step,
        metrics={
            **best.scored.metrics,
            **teacher_metrics(theirs.metrics),
            **baseline_metrics(majority_baseline(task, "validation")),
            "agreement": agreement,
            **compare_sizes(student, teacher.model),
            **compare_speeds(student, teacher.model, validation, recipe.precision),
        },
        test_metrics=_test(replace(job, task=task), device),  # both with the order of the teacher's labels
        predictions_path=predictions_path,
        datasets=[
            dataset_result(task, {"train": train, "validation": validation}),
            *(dataset for _, dataset in unlabeled),
        ],
        seconds=perf_counter() - begun_at,
    )


def _build_student(spec: DistillSpec, teacher: FineTunedModel, task: Task, init_folder: str | None) -> HeadModel:
    """A model with the teacher's head and vocabulary, which decodes as the teacher does: some of the teacher's layers,
    another model's encoder, or random weights.

    Raises: SpecError, ConfigError, TokenizerError, CheckpointError where student and teacher do not go together.
    """
    recipe, theirs = spec.recipe, teacher.model
    check_decoder(spec, theirs.config)
    check_fit(theirs.config, recipe.model_copy(update={"init_from": spec.teacher}), teacher.tokenizer)
    if spec.num_hidden_layers is not None:
        student: HeadModel = student_of(theirs, spec.num_hidden_layers, recipe.dropout, recipe.attention_dropout)
    else:
        if init_folder is not None:
            teacher.tokenizer.check_agrees(Tokenizer.load(local_copy(init_folder)))
        recipe = recipe.model_copy(update={"token_decoder": theirs.config.token_decoder})
        folder = None if init_folder is None else str(local_copy(init_folder))
        student = build_model(task, recipe, folder, teacher.tokenizer)
    HEADS[task.head].follow_teacher(student, theirs, task.objective, recipe)
    check_widths(spec, student.config, theirs.config, task.head)
    return student


def check_decoder(spec: DistillSpec, teacher: BertConfig) -> None:
    """Check that a recipe has no fields of another decoder than the teacher's, which the student gets.

    Raises: SpecError.
    """
    decoder = teacher.token_decoder
    for name in ("token_decoder", *SILENT_FIELDS["token_decoder", decoder]):
        value = getattr(spec.recipe, name)
        if value not in (RecipeSpec.model_fields[name].default, decoder):
            raise SpecError(
                f"recipe.{name} {value!r} has no effect: the student decodes as {spec.teacher} does, with "
                f"token_decoder {decoder}; leave it out"
            )


def check_widths(spec: DistillSpec, student: BertConfig, teacher: BertConfig, head: Head | None = None) -> None:
    """Check that hidden states, or a task's vectors, can be compared where they are to be. Raises: SpecError."""
    compared = {"hidden_cosine_weight": "hidden states"}
    if head is not None and HEADS[head].gives_vectors:
        compared["soft_targets_weight"] = "vectors"
    for field, what in compared.items():
        if getattr(spec.objective, field) and student.hidden_size != teacher.hidden_size:
            raise SpecError(
                f"objective.{field} compares {what}, which are {student.hidden_size} wide in the student and "
                f"{teacher.hidden_size} in {spec.teacher}; set it to 0, or take layers of the teacher "
                "(num_hidden_layers)"
            )


def _read_unlabeled(job: DistillJob, texts: Task, tokenizer: Tokenizer) -> tuple[Features[Any], DatasetResult]:
    """Texts as the model reads them, and what is recorded of them; the texts themselves go."""
    recipe = job.spec.recipe.model_copy(update={"train_fraction": 1.0})  # a share of the labeled ones alone
    features = prepare_trial_features(texts, "train", recipe, tokenizer, job.cache)
    return features, dataset_result(texts, {"train": features})


def teacher_metrics(scores: Mapping[str, float]) -> dict[str, float]:
    """The teacher's scores by their names among the student's."""
    return {f"teacher.{name}": value for name, value in scores.items()}


def _test(job: DistillJob, device: torch.device) -> dict[str, float]:
    """Both on the test split, as their folders read it and in the recipe's arithmetic; nothing where there is none."""
    task = job.task
    if "test" not in task.files:
        return {}
    own, theirs = (
        evaluate_model(folder, task, "test", _TEST_BATCH_SIZE, job.cache, device, job.spec.recipe.precision)
        for folder in (join(job.run_folder, "model"), job.teacher_folder)
    )
    rows = kept_rows(own.task, "test", own.predictions)
    write_prediction_rows(join(job.run_folder, "predictions/test.jsonl"), rows)
    return {**own.metrics, **teacher_metrics(theirs.metrics), **baseline_metrics(majority_baseline(task, "test"))}


def vector_agreement(
    student: HeadModel, teacher: HeadModel, features: Features[Any], precision: AskedPrecision
) -> float:
    """The mean cosine of both's vectors of a text."""
    own, theirs = (
        torch.from_numpy(compute_logits(model, features, precision)) for model in (student, teacher)
    )  # (2N, H)
    return float(F.cosine_similarity(own, theirs, dim=-1).mean())


def compare_sizes(student: nn.Module, teacher: nn.Module) -> dict[str, float]:
    """`num_parameters` of both and the student's share of the teacher's, `parameter_ratio`."""
    own, theirs = (float(sum(p.numel() for p in model.parameters())) for model in (student, teacher))
    return {"num_parameters": own, "teacher.num_parameters": theirs, "parameter_ratio": own / theirs}


@torch.inference_mode()
def compare_speeds(
    student: HeadModel, teacher: HeadModel, features: Features[Any], precision: AskedPrecision
) -> dict[str, float]:
    """`examples_per_s` of both, and how many times as fast the student is, `speed_ratio`.

    Both go over the same batches in turn, so that other work on the machine slows both; the first batch, once more
    by each, warms up. Inputs that are split into several windows count once for each.
    """
    seconds = dict.fromkeys((student, teacher), 0.0)
    num_windows = min(features.num_windows, _MAX_TIMED_WINDOWS)
    some = np.linspace(0, features.num_windows - 1, num_windows).astype(np.int64)
    some = some[np.argsort(-features.lengths[some], kind="stable")]
    size = max(1, min(_TIMED_BATCH_SIZE, _MAX_TIMED_TOKENS // int(features.lengths[some[0]])))
    batches = [some[place : place + size] for place in range(0, num_windows, size)]
    for model in seconds:
        _seconds(model, features, batches[0], precision)
    for batch in batches:
        for model in seconds:
            seconds[model] += _seconds(model, features, batch, precision)
    own, theirs = num_windows / seconds[student], num_windows / seconds[teacher]
    return {"examples_per_s": own, "teacher.examples_per_s": theirs, "speed_ratio": own / theirs}


def _seconds(model: HeadModel, features: Features[Any], windows: Windows, precision: AskedPrecision) -> float:
    model.eval()
    device = next(model.parameters()).device
    batch, clock = make_batch(features, windows, device), clock_of(device)
    clock.wait()  # for the copy of the batch, too
    begun = clock.mark()
    with autocast(device, precision):
        HEADS[features.head].logits(model, batch)
    return clock.seconds_between(begun, clock.mark())
