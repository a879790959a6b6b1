"""Every head: targets, losses, the tokens it reads. Alone: pytest tests/orchestrator/finetuning/heads/test_heads.py"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor

from bert_core.text.tokenization import Tokenizer
from orchestrator.finetuning.batches import make_batch
from orchestrator.specs import RecipeSpec
from orchestrator.specs.task import Head
from orchestrator.tasks.text_examples import NumericalColumn, TabularColumns, TextExample
from orchestrator.tasks.types import TASK_TYPES
from orchestrator.tasks.types.conll import NerExample
from orchestrator.tasks.types.multiple_choice import MultipleChoiceExample
from orchestrator.tasks.types.sentence_selection import SentencesExample
from orchestrator.tasks.types.squad import Answer, QaExample
from tests.orchestrator.finetuning.heads.prepared import (
    CONFIG,
    Prepared,
    assert_losses_wait_for_nothing,
    prepare,
)
from tests.orchestrator.tasks.definitions import options_of

CLASSES = [
    TextExample("0", "the good road", label="yes"),
    TextExample("1", "a tree"),
    TextExample("2", "bad", "the river", label="no"),
]
CHOICES = ("the road", "a tree", "one stone")
EXAMPLES: dict[Head, tuple[tuple[str, ...], list[Any]]] = {
    "classification": (("no", "yes"), CLASSES),
    "multi_label": (
        ("bad", "good", "plus"),
        [
            TextExample("0", "the good plus road", label=("plus", "good")),
            TextExample("1", "a tree", label=()),
        ],
    ),
    "multiple_choice": ((), [MultipleChoiceExample(str(label), "it is", CHOICES, label) for label in (2, None, 0)]),
    "regression": ((), [TextExample("0", "plus", label=1.5), TextExample("1", "a tree", label=-2.0)]),
    "ner": (
        ("O", "B-PER", "I-PER"),
        [
            NerExample("0", ("the", "anna", "bruno"), ("O", "B-PER", "I-PER")),
            NerExample("1", ("clara", "road"), ("B-PER", "O")),
        ],
    ),
    "qa": ((), [QaExample("0", "what", "the anna", (Answer("anna", 4),)), QaExample("1", "what", "the old road", ())]),
    "sentence_selection": (
        (),
        [
            SentencesExample("0", ("anna", "a tree"), selected=(1,)),
            SentencesExample("1", ("road",), query="what", selected=(0,)),
        ],
    ),
    "embedding": (
        (),
        [
            TextExample("0", "the road", "a road", label=1.0),
            TextExample("1", "one tree", "anna", label=0.25),
        ],
    ),
}
SHAPES: dict[Head, tuple[int, ...]] = {
    "classification": (3, 2),
    "multi_label": (2, 3),
    "multiple_choice": (9,),
    "regression": (2, 1),
    "ner": (9, 3),
    "qa": (13, 2),
    "sentence_selection": (13,),
    "embedding": (4, 8),
}
"""Shapes of the logits."""
STARTS = [0, 3, 10]
"""First tokens of the sentences that are scored, where `what` is a query."""
WORDS = [1, 2, 3, 6, 7]
"""First tokens of words, of `[CLS] the anna bruno [SEP] [CLS] clara road [SEP]`."""
TARGETS: dict[Head, list[Any]] = {
    "classification": [1, -100, 0],
    "multi_label": [[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]],
    "multiple_choice": [2, -100, 0],
    "regression": [1.5, -2.0],
    "ner": [-100, 0, 1, 2, -100, -100, 1, 0, -100],
    "qa": [[4, 4], [0, 0]],
    "sentence_selection": [{0: 0, 3: 1, 10: 1}.get(token, -100) for token in range(13)],
    "embedding": [1.0, 0.25],
}


def qa_loss(logits: Tensor) -> Tensor:
    first, second = (window.log_softmax(dim=0) for window in logits.split([6, 7]))
    return -(first[4].sum() + second[0].sum()) / 4


LOSSES: dict[Head, Callable[[Tensor], Tensor]] = {
    "classification": lambda logits: F.cross_entropy(logits[[0, 2]], torch.tensor([1, 0])),
    "multi_label": lambda logits: F.binary_cross_entropy(logits.sigmoid(), torch.tensor(TARGETS["multi_label"])),
    "multiple_choice": lambda logits: F.cross_entropy(logits.view(3, 3)[[0, 2]], torch.tensor([2, 0])),
    "regression": lambda logits: ((logits[0, 0] - 1.5) ** 2 + (logits[1, 0] + 2.0) ** 2) / 2,
    "ner": lambda logits: F.cross_entropy(logits[WORDS], torch.tensor([0, 1, 2, 1, 0])),
    "qa": qa_loss,
    "sentence_selection": lambda logits: F.binary_cross_entropy(
        logits[STARTS].sigmoid(), torch.tensor([0.0, 1.0, 1.0])
    ),
    "embedding": lambda logits: (
        (F.cosine_similarity(logits[[0, 2]], logits[[1, 3]]) - torch.tensor([1.0, 0.25])) ** 2
    ).mean(),
}
WEIGHTED: dict[Head, tuple[dict[str, float], list[float]]] = {
    "classification": ({"no": 3.0}, [3.0, 1.0]),
    "multi_label": ({"good": 3.0, "plus": 0.5}, [1.0, 3.0, 0.5]),
    "ner": ({"O": 0.25}, [0.25, 1.0, 1.0]),
}
"""Weights as a recipe has them, and of all labels in order."""
READ: dict[Head, list[int]] = {
    "classification": [0, 5, 9],
    "multi_label": [0, 6],
    "regression": [0, 3],
    "ner": [0, 1, 2, 3, 5, 6, 7],
    "sentence_selection": [0, 3, 7, 10],
}
"""Tokens whose outputs a frozen encoder keeps, where these are not all."""


def prepared_for(head: Head, tokenizer: Tokenizer, **options: Any) -> Prepared:
    labels, examples = EXAMPLES[head]
    objective = {"objective": "cosine"} if head == "embedding" else {}
    return prepare(head, labels, examples, tokenizer, **objective, **options)


@pytest.mark.parametrize("head", EXAMPLES)
def test_targets_are_the_labels_of_a_batch(head: Head, tokenizer: Tokenizer) -> None:
    assert prepared_for(head, tokenizer).batch.targets.tolist() == TARGETS[head]


@pytest.mark.parametrize("head", EXAMPLES)
def test_loss_is_its_definition_and_that_of_the_models_logits(head: Head, tokenizer: Tokenizer) -> None:
    prepared = prepared_for(head, tokenizer)
    model, batch, logits = prepared.model(), prepared.batch, prepared.logits(*SHAPES[head])
    torch.testing.assert_close(prepared.head.loss(model, logits, batch), LOSSES[head](logits))
    with torch.no_grad():
        logits = prepared.head.logits(model, batch)
        assert (logits.shape, logits.dtype) == (SHAPES[head], torch.float32)
        assert torch.equal(prepared.head.compute_loss(model, batch), prepared.head.loss(model, logits, batch))
    assert_losses_wait_for_nothing(prepared, model, SHAPES[head])


@pytest.mark.parametrize("head", WEIGHTED)
def test_weighted_and_smoothed_loss_is_that_of_pytorch(head: Head, tokenizer: Tokenizer) -> None:
    """The mean over classes that exclude one another is over the sum of their weights."""
    given, weights = WEIGHTED[head][0], torch.tensor(WEIGHTED[head][1])
    prepared = prepared_for(head, tokenizer)
    model, batch, logits = prepared.model(), prepared.batch, prepared.logits(*SHAPES[head])
    prepared.head.prepare_loss(model, prepared.features, RecipeSpec(class_weights=given, label_smoothing=0.1))
    if head == "multi_label":
        expected = F.binary_cross_entropy_with_logits(logits, batch.targets * 0.9 + 0.05, pos_weight=weights)
    else:
        expected = F.cross_entropy(logits, batch.targets, weights, label_smoothing=0.1)
    torch.testing.assert_close(prepared.head.loss(model, logits, batch), expected)
    assert_losses_wait_for_nothing(prepared, model, SHAPES[head])


@pytest.mark.parametrize(("pooling", "pool"), [("mean", Tensor.mean), ("max", Tensor.amax)])
@pytest.mark.parametrize("head", ["classification", "multi_label", "regression"])
def test_loss_of_long_documents_is_that_of_their_pooled_logits(
    head: Head, pooling: str, pool: Any, tokenizer: Tokenizer
) -> None:
    labels, short = EXAMPLES[head]
    examples = [replace(example, text=f"{example.text} by the old stone house") for example in short]
    prepared = prepare(head, labels, examples, tokenizer, max_seq_length=6, long_documents=pooling)
    model, batch = prepared.model(), prepared.batch
    prepared.head.prepare_loss(model, prepared.features, RecipeSpec(long_documents=pooling))  # type: ignore[arg-type]
    index = prepared.features.example_index
    logits = prepared.logits(len(index), SHAPES[head][1])
    assert len(index) > SHAPES[head][0]
    pooled = torch.stack([pool(logits[torch.from_numpy(index == n)], dim=0) for n in range(SHAPES[head][0])])
    torch.testing.assert_close(prepared.head.loss(model, logits, batch), LOSSES[head](pooled))
    options = options_of(head, long_documents=pooling)
    found = TASK_TYPES[head].gather(prepared.features, logits.numpy(), options)
    np.testing.assert_allclose(found, pooled.numpy(), rtol=1e-6)
    assert_losses_wait_for_nothing(prepared, model, logits.shape)


@pytest.mark.parametrize("head", ["classification", "ner"])
def test_balanced_weights_are_those_of_scikit_learn(head: Head, tokenizer: Tokenizer) -> None:
    """Examples without a label, and classes without an example, change nothing."""
    labels, examples = EXAMPLES[head]
    prepared = prepare(head, (*labels, "B-X"), [*examples, *examples[:1]], tokenizer)
    model, targets = prepared.model(), prepared.batch.host_targets
    prepared.head.prepare_loss(model, prepared.features, RecipeSpec(class_weights="balanced"))
    known = targets[targets != -100]
    expected = compute_class_weight("balanced", classes=np.unique(known), y=known)
    np.testing.assert_allclose(model.class_loss.weights.numpy(), [*expected, 1.0], rtol=1e-6)
    assert prepared.head.count_labels(model, targets) == pytest.approx(len(known))


def test_balanced_labels_weigh_as_much_as_their_absence(tokenizer: Tokenizer) -> None:
    labels, examples = EXAMPLES["multi_label"]
    prepared = prepare("multi_label", labels, [examples[0], examples[1], examples[1]], tokenizer)
    model = prepared.model()
    prepared.head.prepare_loss(model, prepared.features, RecipeSpec(class_weights="balanced"))
    assert model.class_loss.weights.tolist() == [1.0, 2.0, 2.0], "of a label that never occurs nothing is known"
    without = replace(examples[0], label=None)
    prepared = prepare("multi_label", labels, [examples[0], examples[1], examples[1], without], tokenizer)
    prepared.head.prepare_loss(model, prepared.features, RecipeSpec(class_weights="balanced"))
    assert model.class_loss.weights.tolist() == [1.0, 2.0, 2.0], "a text without labels says nothing of them"


@pytest.mark.parametrize("head", EXAMPLES)
def test_soft_loss_is_a_distance(head: Head, tokenizer: Tokenizer) -> None:
    prepared = prepared_for(head, tokenizer)
    teacher, other = prepared.logits(*SHAPES[head]), prepared.logits(*SHAPES[head], seed=1)
    for temperature in (1.0, 4.0):
        same, far = (
            float(prepared.head.soft_loss(student, teacher, prepared.batch, temperature))
            for student in (teacher.clone(), other)
        )
        assert abs(same) < 1e-6
        assert far > 1e-3


def test_soft_loss_of_labels_is_the_divergence_of_each_from_its_absence(tokenizer: Tokenizer) -> None:
    prepared = prepared_for("multi_label", tokenizer)
    student, teacher = prepared.logits(2, 3), prepared.logits(2, 3, seed=1)
    ours, theirs = student.sigmoid(), teacher.sigmoid()
    expected = (theirs * (theirs / ours).log() + (1 - theirs) * ((1 - theirs) / (1 - ours)).log()).mean()
    found = prepared.head.soft_loss(student, teacher, prepared.batch, 1.0)
    torch.testing.assert_close(found, expected)


def test_soft_loss_passes_over_what_no_decision_depends_on(tokenizer: Tokenizer) -> None:
    """What all choices have in common; tokens that are no words; tokens that begin no sentence."""
    teacher = {head: prepared_for(head, tokenizer).logits(*SHAPES[head]) for head in SHAPES}
    student = {"multiple_choice": teacher["multiple_choice"] + torch.tensor([5.0, -3.0, 0.0]).repeat_interleave(3)}
    for head, places in (("ner", WORDS), ("sentence_selection", STARTS)):
        student[head] = torch.zeros_like(teacher[head])
        student[head][places] = teacher[head][places]
    for head, logits in student.items():
        prepared = prepared_for(head, tokenizer)
        assert abs(prepared.head.soft_loss(logits, teacher[head], prepared.batch, 1.0)) < 1e-6


@pytest.mark.parametrize("head", ["classification", "multi_label", "regression", "ner", "qa", "sentence_selection"])
def test_a_frozen_encoder_keeps_the_tokens_that_are_read(head: Head, tokenizer: Tokenizer) -> None:
    prepared = prepared_for(head, tokenizer)
    found = prepared.head.tokens_read(CONFIG, prepared.features)
    assert (None if found is None else found.tolist()) == READ.get(head)


@pytest.mark.parametrize("head", ["classification", "multi_label", "multiple_choice", "regression"])
def test_all_tokens_are_read_of_a_causal_encoder_which_pools_the_last(head: Head, tokenizer: Tokenizer) -> None:
    prepared = prepared_for(head, tokenizer)
    assert prepared.head.tokens_read(CONFIG, prepared.features) is not None
    assert prepared.head.tokens_read(replace(CONFIG, causal_attention=True), prepared.features) is None


def test_own_columns_stand_beside_each_window(tokenizer: Tokenizer) -> None:
    columns = TabularColumns((NumericalColumn("size", mean=2.0, standard_deviation=4.0),))
    examples = [replace(example, numbers=(size,)) for example, size in zip(CLASSES, (6.0, None, 0.0), strict=True)]
    beside = prepare("classification", ("no", "yes"), examples, tokenizer, columns=columns)
    batch = make_batch(beside.features, np.array([2, 0, 1]), torch.device("cpu"))
    np.testing.assert_array_equal(batch.tabular_features, np.array([[-0.5, 0.0], [1.0, 0.0], [0.0, 1.0]], np.float32))
