"""Agreement, sizes and speeds of two models. Run alone: pytest tests/orchestrator/distillation/test_comparison.py"""

from pathlib import Path

import pytest

from bert_core.config import BertConfig
from bert_core.heads import BertForSequenceClassification
from orchestrator.distillation.comparison import agreement, compare_sizes, compare_speeds
from orchestrator.tasks import (
    AnswerPrediction,
    ChoicePrediction,
    ClassPrediction,
    LabelsPrediction,
    Prediction,
    TagsPrediction,
    ValuePrediction,
    build_features,
    load_task,
)
from tests.orchestrator.finetuning import tiny_tasks

SIDES: dict[str, tuple[list[Prediction], list[Prediction], float]] = {
    "classes": (
        [ClassPrediction("a", (0.9, 0.1)), ClassPrediction("b"), ClassPrediction("a"), ClassPrediction("a")],
        [ClassPrediction("a", (0.6, 0.4)), ClassPrediction("b"), ClassPrediction("a"), ClassPrediction("b")],
        0.75,
    ),
    "labels": (
        [LabelsPrediction(("a", "b"), (0.9, 0.8)), LabelsPrediction((), (0.1, 0.2))],
        [LabelsPrediction(("a", "b"), (0.6, 0.6)), LabelsPrediction(("a",), (0.6, 0.2))],
        0.5,
    ),
    "choices": (
        [ChoicePrediction(1), ChoicePrediction(0)],
        [ChoicePrediction(1, (0.4, 0.6)), ChoicePrediction(2)],
        0.5,
    ),
    "words": (
        [TagsPrediction(("O", "B-x", "I-x")), TagsPrediction(("O",))],
        [TagsPrediction(("O", "B-x", "O")), TagsPrediction(("B-x",))],
        0.5,
    ),
    "answers": ([AnswerPrediction("x"), AnswerPrediction("")], [AnswerPrediction("x"), AnswerPrediction("y")], 0.5),
    "values": ([ValuePrediction(v) for v in (1.0, 2.0, 3.0)], [ValuePrediction(v) for v in (0.0, 5.0, 10.0)], 1.0),
}


@pytest.mark.parametrize("kind", SIDES)
def test_agreement_is_the_share_of_equal_predictions(kind: str) -> None:
    student, teacher, expected = SIDES[kind]
    assert agreement(student, teacher) == agreement(teacher, student) == pytest.approx(expected)
    assert agreement(student, student) == pytest.approx(1.0)


def two_models(vocab_size: int) -> tuple[BertForSequenceClassification, BertForSequenceClassification]:
    small, large = (BertConfig.from_shape(layers, 128, vocab_size=vocab_size) for layers in (1, 8))
    return BertForSequenceClassification.from_config(small), BertForSequenceClassification.from_config(large)


def test_sizes_count_every_weight() -> None:
    student, teacher = two_models(100)
    layer = sum(parameter.numel() for parameter in teacher.bert.layers[0].parameters())
    sizes = compare_sizes(student, teacher)
    assert sizes["teacher.num_parameters"] - sizes["num_parameters"] == 7 * layer
    assert sizes["parameter_ratio"] == sizes["num_parameters"] / sizes["teacher.num_parameters"]


def test_an_eighth_of_the_layers_is_faster(tmp_path: Path) -> None:
    tokenizer = tiny_tasks.load_tokenizer(tmp_path)
    task = load_task(tiny_tasks.classification(tmp_path))
    features = build_features(task.head, task.labels, task.examples("train"), tokenizer, max_seq_length=32)
    student, teacher = two_models(tokenizer.vocab_size)
    speeds = compare_speeds(student, teacher, features)
    assert speeds["examples_per_s"] > speeds["teacher.examples_per_s"] > 0
    assert speeds["speed_ratio"] > 1.5
