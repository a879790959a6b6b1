"""The loss of a distillation against one written out without packing or caching, for each head; speeds compared.

Run alone: pytest tests/orchestrator/finetuning/test_distillation_loss.py
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks._attention_choice import forced_attention
from bert_core.constants import Precision
from orchestrator.finetuning.batches import make_batch, make_parts
from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.distillation_job import compare_speeds, vector_agreement
from orchestrator.finetuning.distillation_loss import DistillationLoss
from orchestrator.finetuning.heads import HEADS, HeadModel
from orchestrator.finetuning.trial import prepare_trial_features
from orchestrator.specs import TaskSpec
from orchestrator.specs.distill import LossWeightsSpec
from orchestrator.tasks.features import Features
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.task import Task
from tests.orchestrator.finetuning import tiny_tasks
from tests.synchronizations import counted_synchronizations

TASKS: dict[str, Callable[[Path], TaskSpec]] = {
    "classification": tiny_tasks.classification,
    "multi_label": tiny_tasks.multi_label,
    "multiple_choice": tiny_tasks.multiple_choice,
    "columns": tiny_tasks.columns,
    "regression": tiny_tasks.regression,
    "ner": tiny_tasks.ner,
    "qa": tiny_tasks.qa,
    "sentence_selection": tiny_tasks.sentence_selection,
    "embedding": lambda folder: tiny_tasks.pairs(folder, "cosine"),
}
CPU = torch.device("cpu")
GROUPS = np.array([7, 2, 30])


def example(task: Task, folder: Path) -> tuple[HeadModel, HeadModel, Features]:
    """Two models of random weights, far from one another, and the training split's features."""
    tokenizer = tiny_tasks.load_tokenizer(folder)
    recipes = [tiny_tasks.RECIPE.model_copy(update={"seed": seed, "initializer_range": 0.2}) for seed in (1, 2)]
    models = (build_model(task, recipe, None, tokenizer).eval() for recipe in recipes)
    return *models, prepare_trial_features(task, "train", recipes[0], tokenizer, str(folder / "cache"))


def written_out(
    student: HeadModel, teacher: HeadModel, features: Features, objective: LossWeightsSpec, num_labeled: int = 1000
) -> Tensor:
    """Example by example: every choice between classes, places or presence and absence as a distribution of its own."""
    soft, hard, angles = [], [], []
    for group in GROUPS:
        batch = make_batch(features, features.windows_of(group[None]), torch.device("cpu"))
        own, theirs = (HEADS[features.head].logits(model, batch) for model in (student, teacher))
        angles += list(F.cosine_similarity(student.bert.encode(batch.seqs), teacher.bert.encode(batch.seqs)))
        if features.head == "regression":
            soft.append((own - theirs).square().squeeze())
            if group < num_labeled:
                hard.append((own - batch.targets).square().squeeze())
            continue
        if features.head == "embedding":
            soft += list((own - theirs).square().sum(dim=1))
            if group < num_labeled:
                hard.append((F.cosine_similarity(own[:1], own[1:]) - batch.targets).square().squeeze())
            continue
        labels = batch.targets.flatten().tolist()
        if features.head in ("ner", "sentence_selection"):
            places = [place for place, label in enumerate(labels) if label != -100]
            rows, labels = [(own[place], theirs[place]) for place in places], [labels[place] for place in places]
            if features.head == "sentence_selection":
                rows = [(torch.stack([torch.zeros(()), a]), torch.stack([torch.zeros(()), b])) for a, b in rows]
        elif features.head == "qa":
            rows = [(own[:, side], theirs[:, side]) for side in range(2)]
        elif features.head == "multi_label":
            zero = torch.zeros(())
            rows = [(torch.stack([zero, a]), torch.stack([zero, b])) for a, b in zip(own[0], theirs[0], strict=True)]
        else:
            rows = [(own.flatten(), theirs.flatten())]
        for (logits, targets), label in zip(rows, labels, strict=True):
            p, q = (F.softmax(values / objective.temperature, dim=0) for values in (targets, logits))
            soft.append(objective.temperature**2 * (p * (p.log() - q.log())).sum())
            if group < num_labeled:
                hard.append(-F.log_softmax(logits, dim=0)[int(label)])
    parts = [torch.stack(part).mean() for part in (soft, hard, angles)]
    labels = objective.labels_weight * float((num_labeled > GROUPS).mean())
    return (
        objective.soft_targets_weight * parts[0] + labels * parts[1] + objective.hidden_cosine_weight * (1 - parts[2])
    )


@pytest.mark.parametrize("weights", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (5, 2, 1)])
@pytest.mark.parametrize("head", TASKS)
@pytest.mark.heavy
@pytest.mark.core
def test_the_loss_is_the_weighted_sum_written_out(head: str, weights: tuple[int, int, int], tmp_path: Path) -> None:
    student, teacher, features = example(load_task(TASKS[head](tmp_path)), tmp_path)
    soft_targets, labels, hidden_cosine = weights
    objective = LossWeightsSpec(
        soft_targets_weight=soft_targets, labels_weight=labels, hidden_cosine_weight=hidden_cosine, temperature=3.0
    )
    loss = DistillationLoss(teacher, features, objective, "fp32", features.num_examples)
    batch = make_batch(features, features.windows_of(GROUPS), torch.device("cpu"))
    with torch.no_grad():
        found = loss(student, batch)
        torch.testing.assert_close(found, written_out(student, teacher, features, objective), atol=1e-5, rtol=1e-5)
    assert found > 0.01


@pytest.mark.parametrize("head", TASKS)
@pytest.mark.heavy
def test_texts_without_labels_count_in_all_but_the_labels_loss(head: str, tmp_path: Path) -> None:
    student, teacher, features = example(load_task(TASKS[head](tmp_path)), tmp_path)
    objective, num_labeled = LossWeightsSpec(soft_targets_weight=5, labels_weight=2, hidden_cosine_weight=1), 10
    unlabeled = without_labels(features, num_labeled)
    loss = DistillationLoss(teacher, unlabeled, objective, "fp32", num_labeled)
    with torch.no_grad():
        for groups in (GROUPS, GROUPS[2:]):
            batch = make_batch(unlabeled, features.windows_of(groups), torch.device("cpu"))
            found = loss(student, batch)
            if len(groups) == 3:
                expected = written_out(student, teacher, features, objective, num_labeled)
                torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
            assert found.isfinite()


@pytest.mark.parametrize("name", [*TASKS, "in-batch negatives"])
@pytest.mark.heavy
def test_parts_have_loss_and_gradient_of_the_whole(name: str, tmp_path: Path) -> None:
    """Labels are where the first examples are, so that a part may have none."""
    make_task = TASKS.get(name, lambda folder: tiny_tasks.pairs(folder, "in_batch_negatives"))
    student, teacher, features = example(load_task(make_task(tmp_path)), tmp_path)
    features = without_labels(features, 10)
    objective = LossWeightsSpec(soft_targets_weight=5, labels_weight=2, hidden_cosine_weight=1)
    loss = DistillationLoss(teacher, features, objective, "fp32", num_labeled=10)
    found = []
    for parts in ([GROUPS], [GROUPS[:1], GROUPS[1:]], [GROUPS[:2], GROUPS[2:]]):
        windows = [features.windows_of(part) for part in parts]
        logits = None
        if len(parts) > 1 and HEADS[features.head].compares_examples(student):
            with torch.no_grad():
                batch = make_batch(features, np.concatenate(windows), torch.device("cpu"))
                logits = loss.logits(student, batch)
        values = [loss(student, batch) for batch in make_parts(student, features, windows, logits)]
        torch.stack(values).sum().backward()  # type: ignore[no-untyped-call]
        gradients = [parameter.grad for parameter in student.parameters() if parameter.grad is not None]
        found.append((float(sum(values).detach()), torch.cat([each.flatten() for each in gradients])))
        student.zero_grad()
    value, whole = found[0]
    for value_of_parts, in_parts in found[1:]:
        assert value_of_parts == pytest.approx(value, rel=1e-5)
        assert float((in_parts - whole).norm() / whole.norm()) < 1e-5


@pytest.mark.parametrize("num_labeled", [10, 1000])
@pytest.mark.parametrize("name", ["classification", "ner", "embedding"])
@pytest.mark.heavy
def test_no_step_waits_for_the_device(
    name: str, num_labeled: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels are where the first examples are: of some of a batch's, or of all, in a whole batch and in parts."""
    make_task = {**TASKS, "embedding": lambda folder: tiny_tasks.pairs(folder, "in_batch_negatives")}[name]
    student, teacher, features = example(load_task(make_task(tmp_path)), tmp_path)
    features = without_labels(features, num_labeled)
    objective = LossWeightsSpec(soft_targets_weight=5, labels_weight=2, hidden_cosine_weight=1)
    loss = DistillationLoss(teacher, features, objective, "fp32", num_labeled)
    windows = [features.windows_of(groups) for groups in (GROUPS, GROUPS[:1], GROUPS[1:])]
    logits = None
    if name == "embedding":
        with torch.no_grad():
            logits = loss.logits(student, make_batch(features, windows[0], CPU))
    batches = [make_batch(features, windows[0], CPU), *make_parts(student, features, windows[1:], logits)]
    labeled = [each[features.example_index[each] < num_labeled] for each in windows]
    made = {tuple(each): make_batch(features, each, CPU) for each in labeled}
    monkeypatch.setattr(
        "orchestrator.finetuning.distillation_loss.make_batch", lambda features, windows, device: made[tuple(windows)]
    )
    with forced_attention("fused"), counted_synchronizations() as waits:
        for batch in batches:
            loss(student, batch).backward()  # type: ignore[no-untyped-call]
    assert waits == []


def without_labels(features: Features, num_labeled: int) -> Features:
    """The features as they are when the examples from a number on have no labels."""
    arrays = features.head_arrays.by_name()
    changed = {}
    if "labels" in arrays:
        labels = changed["labels"] = arrays["labels"].copy()
        labels[num_labeled:] = np.nan if labels.dtype.kind == "f" else 0 if labels.ndim > 1 else -100
    if "token_labels" in arrays:
        tokens = changed["token_labels"] = arrays["token_labels"].copy()
        tokens[features.cu_seqlens[np.searchsorted(features.example_index, num_labeled)] :] = -100
    return replace(features, head_arrays=replace(features.head_arrays, **changed))


def test_the_teacher_does_not_learn(tmp_path: Path) -> None:
    student, teacher, features = example(load_task(tiny_tasks.classification(tmp_path)), tmp_path)
    loss = DistillationLoss(teacher, features, LossWeightsSpec(hidden_cosine_weight=1.0), "fp32", features.num_examples)
    student.train()
    loss(student, make_batch(features, features.windows_of(GROUPS), torch.device("cpu"))).backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert any(parameter.grad is not None and parameter.grad.abs().max() > 0 for parameter in student.parameters())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_speeds_and_vectors_are_those_of_the_recipes_precision(
    precision: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, task = tiny_tasks.load_tokenizer(tmp_path), load_task(tiny_tasks.pairs(tmp_path, "cosine"))
    model = build_model(task, tiny_tasks.RECIPE, None, tokenizer)
    features = prepare_trial_features(task, "validation", tiny_tasks.RECIPE, tokenizer, str(tmp_path / "cache"))
    is_rounded, packed_logits = [], type(model).packed_logits

    def noted(self: Any, *arguments: Any) -> torch.Tensor:
        is_rounded.append(torch.is_autocast_enabled("cpu"))
        return packed_logits(self, *arguments)

    monkeypatch.setattr(type(model), "packed_logits", noted)
    compare_speeds(model, model, features, precision)
    assert vector_agreement(model, model, features, precision) == pytest.approx(1.0, abs=1e-4)
    assert set(is_rounded) == {precision == "bf16"}
