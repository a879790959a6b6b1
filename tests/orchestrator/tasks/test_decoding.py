"""From a model's outputs to predictions, per head; outputs that do not fit are named.

Alone: pytest tests/orchestrator/tasks/test_decoding.py
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_core.errors import DataError
from bert_core.text.tokenization import Tokenizer
from orchestrator.specs import TaskSpec
from orchestrator.tasks import (
    DecodingOptions,
    FeatureOptions,
    Features,
    Task,
    TaskDefinition,
    decode,
    load_task,
    prepare_features,
    score,
)
from orchestrator.tasks.types.classification import ClassificationExample, ClassPrediction
from orchestrator.tasks.types.conll import NerExample
from orchestrator.tasks.types.multi_label import LabelsPrediction, MultiLabelExample
from orchestrator.tasks.types.multiple_choice import ChoicePrediction, MultipleChoiceExample
from orchestrator.tasks.types.ner import TagsPrediction
from orchestrator.tasks.types.qa import AnswerPrediction
from orchestrator.tasks.types.regression import RegressionExample, ValuePrediction
from tests.orchestrator.tasks.definitions import define, features_of

CONTEXT = "Ada Lovelace wrote to Charles Babbage in London about the engine."


def make_task(head: Any, *labels: str) -> TaskDefinition:
    return define(head, labels)


def test_classes_are_the_likeliest_with_probabilities(tokenizer: Tokenizer) -> None:
    task = make_task("classification", "no", "yes")
    examples = [ClassificationExample(str(i), "the house") for i in range(2)]
    features = features_of(task.head, task.labels, examples, tokenizer, max_seq_length=8)
    predictions = decode(task, features, examples, np.array([[0.0, np.log(3.0)], [900.0, -900.0]], np.float32))
    assert predictions[0] == ClassPrediction("yes", (pytest.approx(0.25), pytest.approx(0.75)))
    assert predictions[1] == ClassPrediction("no", (1.0, 0.0))


def test_labels_are_those_above_one_half(tokenizer: Tokenizer) -> None:
    task = make_task("multi_label", "a", "b", "c")
    examples = [MultiLabelExample(str(i), "the house", labels=labels) for i, labels in enumerate([("c", "a"), ()])]
    features = features_of(task.head, task.labels, examples, tokenizer, max_seq_length=8)
    assert features.head_arrays.labels.tolist() == [[1, 0, 1], [0, 0, 0]]
    logits = np.array([[np.log(3.0), 0.0, 900.0], [-900.0, -1.0, -2.0]], np.float32)
    first, second = decode(task, features, examples, logits)
    assert first == LabelsPrediction(("a", "c"), (pytest.approx(0.75), 0.5, 1.0))
    assert (second.labels, second.probabilities[0]) == ((), 0.0)  # type: ignore[union-attr]
    with pytest.raises(DataError, match=r"logits have the shape \(2, 2\); task mine has 3 classes"):
        decode(task, features, examples, logits[:, :2])


def test_choices_share_their_probability_within_an_example(tokenizer: Tokenizer) -> None:
    task = make_task("multiple_choice")
    examples = [MultipleChoiceExample("0", "a", ("b", "c", "d")), MultipleChoiceExample("1", "a", ("b", "c"))]
    features = features_of(task.head, (), examples, tokenizer, max_seq_length=8)
    predictions = decode(task, features, examples, np.array([[0.0], [np.log(2.0)], [0.0], [5.0], [-900.0]], np.float32))
    assert predictions[0] == ChoicePrediction(1, (pytest.approx(0.25), pytest.approx(0.5), pytest.approx(0.25)))
    assert predictions[1] == ChoicePrediction(0, (1.0, 0.0))
    with pytest.raises(DataError, match="4 outputs for 5 choices"):
        decode(task, features, examples, np.zeros(4))


def test_values_come_flat_or_in_a_column(tokenizer: Tokenizer) -> None:
    task = make_task("regression")
    examples = [RegressionExample("0", "a")] * 2
    features = features_of(task.head, (), examples, tokenizer, max_seq_length=8)
    expected = [ValuePrediction(1.5), ValuePrediction(-2.0)]
    assert decode(task, features, examples, np.array([1.5, -2.0])) == expected
    assert decode(task, features, examples, np.array([[1.5], [-2.0]])) == expected


def test_tags_are_those_of_first_sub_tokens_over_all_windows(tokenizer: Tokenizer) -> None:
    task = make_task("ner", "O", "B-PER", "I-PER")
    rng = np.random.default_rng(0)
    tags = [tuple(rng.choice(task.labels, size=size)) for size in (40, 1, 3)]
    examples = [NerExample(str(i), ("Lovelace",) * len(tags[i]), tags[i]) for i in range(3)]
    features = features_of(task.head, task.labels, examples, tokenizer, max_seq_length=16)
    numbers = np.where(features.head_arrays.token_labels < 0, 2, features.head_arrays.token_labels)
    assert features.num_windows > 3
    assert decode(task, features, examples, numbers) == [TagsPrediction(t) for t in tags]
    assert decode(task, features, examples, np.eye(3)[numbers]) == [TagsPrediction(t) for t in tags]


@pytest.fixture
def questions(tmp_path: Path) -> Task:
    answer = {"text": "Charles Babbage", "answer_start": CONTEXT.index("Charles")}
    qas = [
        {"id": "a", "question": "Who?", "answers": [answer]},
        {"id": "b", "question": "Who?", "answers": []},
        {"id": "c", "question": "Who?", "answers": [answer]},
    ]
    path = tmp_path / "dev-v2.0.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": qas}]}]}), encoding="utf-8")
    return load_task(TaskSpec(id="squad_v2", folder=str(tmp_path)))


def prepare(task: Task, tokenizer: Tokenizer, tmp_path: Path) -> Features:
    lengths = {"max_seq_length": 20, "doc_stride": 6, "max_query_length": 8}
    return prepare_features(task, "validation", tokenizer, FeatureOptions(**lengths), str(tmp_path / "cache"))


def decode_questions(task: Task, features: Features[Any], **options: Any) -> list[AnswerPrediction]:
    return decode(task, features, task.examples("validation"), gold_logits(features), DecodingOptions(**options))


def gold_logits(features: Features[Any]) -> np.ndarray:
    """Logits that point at the answer in every window that holds it, and weakly at [CLS]."""
    logits = np.zeros((2, len(features.input_ids)), np.float32)
    logits[:, features.cu_seqlens[:-1]] = 2.0
    for row, positions in zip(
        logits, (features.head_arrays.start_positions, features.head_arrays.end_positions), strict=True
    ):
        row[(features.cu_seqlens[:-1] + positions)[positions > 0]] = 5.0
    return logits.T


def test_answers_come_from_the_window_that_holds_them(questions: Task, tokenizer: Tokenizer, tmp_path: Path) -> None:
    features = prepare(questions, tokenizer, tmp_path)
    predictions = decode_questions(questions, features)
    assert [p.text for p in predictions] == ["Charles Babbage", "", "Charles Babbage"]
    assert [p.null_margin for p in predictions] == [-6.0, 4.0, -6.0]
    best = predictions[0].candidates[0]
    assert CONTEXT[best.start : best.end] == best.text
    assert score(questions, "validation", predictions)["exact_match"] == 1.0


def test_an_answer_is_no_longer_than_asked(questions: Task, tokenizer: Tokenizer, tmp_path: Path) -> None:
    features = prepare(questions, tokenizer, tmp_path)
    answer = decode_questions(questions, features, max_answer_length=1, null_threshold=9.0)[0]
    assert answer.text in "Charles Babbage"
    assert len(tokenizer.encode_ids([answer.text])[0]) == 1


def test_a_threshold_decides_between_an_answer_and_none(questions: Task, tokenizer: Tokenizer, tmp_path: Path) -> None:
    features = prepare(questions, tokenizer, tmp_path)
    predictions = decode_questions(questions, features, null_threshold=4.0)
    assert predictions[1].text != ""
    assert [p.text for p in questions.type.with_null_threshold(questions, predictions, -7.0)] == ["", "", ""]
    threshold = questions.type.tune_null_threshold(questions, questions.examples("validation"), predictions)
    tuned = questions.type.with_null_threshold(questions, predictions, threshold)
    assert score(questions, "validation", tuned)["f1"] == 1.0
    assert -6.0 <= threshold < 4.0


def test_every_question_is_answered_where_all_have_answers(
    questions: Task, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    features = prepare(questions, tokenizer, tmp_path)
    answerable = load_task(TaskSpec(id="squad", files={"validation": questions.file("validation")}))
    logits = np.zeros(len(features.input_ids))
    logits[features.cu_seqlens[:-1]] = 99.0
    predictions = decode(answerable, features, answerable.examples("validation"), np.stack([logits, logits], axis=1))
    assert all(isinstance(p, AnswerPrediction) and p.text for p in predictions)


def test_outputs_that_do_not_fit_are_named(questions: Task, tokenizer: Tokenizer, tmp_path: Path) -> None:
    classes = make_task("classification", "no", "yes")
    examples = [ClassificationExample("0", "a")]
    features = features_of("classification", classes.labels, examples, tokenizer, max_seq_length=8)
    with pytest.raises(DataError, match="2 outputs for 1 examples"):
        decode(classes, features, examples, np.zeros((2, 2)))
    with pytest.raises(DataError, match=r"shape \(1, 3\); task mine has 2 classes"):
        decode(classes, features, examples, np.zeros((1, 3)))
    with pytest.raises(DataError, match="not finite; the model has diverged"):
        decode(classes, features, examples, np.full((1, 2), np.nan))
    with pytest.raises(DataError, match="start_logits, end_logits"):
        decode(questions, prepare(questions, tokenizer, tmp_path), questions.examples("validation"), np.zeros(3))
