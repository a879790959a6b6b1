"""A model's outputs over a split's features, as predictions per example."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from bert_core.answer_spans import decode_spans, tune_null_threshold
from bert_core.errors import DataError
from bert_core.metrics import answer_scores
from orchestrator.results import Split
from orchestrator.tasks.examples import Example, QaExample
from orchestrator.tasks.features import Features
from orchestrator.tasks.predictions import (
    AnswerCandidate,
    AnswerPrediction,
    ChoicePrediction,
    ClassPrediction,
    LabelsPrediction,
    Prediction,
    RankingPrediction,
    TagsPrediction,
    ValuePrediction,
)
from orchestrator.tasks.task import Task

Outputs = NDArray[np.generic] | tuple[NDArray[np.floating], NDArray[np.floating]]
"""Class or label logits (N, C), choice logits or values (W,), tag logits (T, C) or numbers (T,), start and end logits
(T,); for pairs, the rows of the nearest second texts (N, K)."""


def decode(
    task: Task,
    features: Features,
    outputs: Outputs,
    *,
    examples: Sequence[Example] | None = None,
    max_answer_length: int = 30,
    null_threshold: float = 0.0,
) -> list[Prediction]:
    """A prediction per example. `examples` are those the features were made of, when they are not a split of the task.

    Where questions may be unanswerable, "no answer" is said at null margins over `null_threshold`.
    Raises: DataError when the outputs do not fit the features or are not finite.
    """
    if isinstance(outputs, tuple) != (task.head == "qa"):
        raise DataError("question answering is decoded from (start_logits, end_logits), other heads from one array")
    if isinstance(outputs, tuple):
        questions = cast(Sequence[QaExample], _examples_of(task, features, examples))
        answers = _decode_answers(features, questions, outputs, max_answer_length)
        return list(with_null_threshold(answers, null_threshold) if task.unanswerable else answers)
    if not np.isfinite(outputs).all():
        raise DataError("the outputs hold values that are not finite; the model has diverged, lower learning_rate")
    if task.predicts == "regression":
        _check_length(outputs, features.num_examples, "example")
        return [ValuePrediction(value) for value in outputs.reshape(-1).tolist()]
    if task.head == "ner":
        return list(_decode_tags(task, features, outputs))
    if task.predicts == "retrieval":
        return list(_decode_rankings(_examples_of(task, features, examples), outputs))
    if task.head == "multiple_choice":
        return list(_decode_choices(features, outputs))
    if task.head == "multi_label":
        return list(_decode_labels(task, features, outputs))
    return list(_decode_classes(task, features, outputs))


def _examples_of(task: Task, features: Features, examples: Sequence[Example] | None) -> Sequence[Example]:
    if examples is None:
        assert features.split is not None, "features of loose examples are decoded with these examples"
        examples = task.examples(features.split)
    return examples


def with_null_threshold(predictions: Sequence[AnswerPrediction], threshold: float) -> list[AnswerPrediction]:
    """The same answers, with "no answer" said where its margin exceeds the threshold."""
    return [
        replace(p, text=p.candidates[0].text if p.candidates and p.null_margin <= threshold else "")
        for p in predictions
    ]


def best_null_threshold(task: Task, split: Split, predictions: Sequence[AnswerPrediction]) -> float:
    """The threshold with the best F1 on a labeled split (squad_v2 tunes it on validation)."""
    questions = cast(Sequence[QaExample], task.examples(split))
    answered, null = [], []
    for question, prediction in zip(questions, predictions, strict=True):
        golds = [answer.text for answer in question.answers]
        best = prediction.candidates[0].text if prediction.candidates else ""
        answered.append(answer_scores(best, golds, unanswerable=True)[1])
        null.append(answer_scores("", golds, unanswerable=True)[1])
    margins = np.array([prediction.null_margin for prediction in predictions])
    return tune_null_threshold(margins, np.array(answered), np.array(null))


def _check_length(outputs: NDArray[np.generic], expected: int, unit: str) -> None:
    if len(outputs) != expected:
        raise DataError(f"{len(outputs)} outputs for {expected} {unit}s; there must be one for each")


def _check_classes(task: Task, features: Features, logits: NDArray[np.generic]) -> None:
    _check_length(logits, features.num_examples, "example")
    if logits.shape[1:] != (len(task.labels),):
        raise DataError(f"logits have the shape {logits.shape}; task {task.id} has {len(task.labels)} classes")


def _softmax(logits: NDArray[np.generic]) -> NDArray[np.float64]:
    """Over the last axis."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True).astype(np.float64))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def _decode_classes(task: Task, features: Features, logits: NDArray[np.generic]) -> list[ClassPrediction]:
    _check_classes(task, features, logits)
    best = logits.argmax(axis=1).tolist()
    return [
        ClassPrediction(task.labels[number], tuple(row))
        for number, row in zip(best, _softmax(logits).tolist(), strict=True)
    ]


def _decode_labels(task: Task, features: Features, logits: NDArray[np.generic]) -> list[LabelsPrediction]:
    _check_classes(task, features, logits)
    probabilities = np.exp(-np.logaddexp(0.0, -logits.astype(np.float64)))  # (N, C), the logistic function
    return [LabelsPrediction.from_probabilities(task.labels, row) for row in probabilities.tolist()]


def _decode_choices(features: Features, logits: NDArray[np.generic]) -> list[ChoicePrediction]:
    _check_length(logits, features.num_windows, "choice")
    examples = np.split(logits.reshape(-1), np.flatnonzero(np.diff(features.example_index)) + 1)
    return [ChoicePrediction(int(some.argmax()), tuple(_softmax(some).tolist())) for some in examples]


def _decode_rankings(examples: Sequence[Example], rows: NDArray[np.generic]) -> list[RankingPrediction]:
    """Rows of examples, best first, (N, K), as their ids."""
    ids = np.array([example.id for example in examples], dtype=object)
    return [RankingPrediction(tuple(ids[row])) for row in rows.astype(np.int64)]


def _decode_tags(task: Task, features: Features, outputs: NDArray[np.generic]) -> list[TagsPrediction]:
    _check_length(outputs, len(features.input_ids), "token")
    numbers = outputs.argmax(axis=1) if outputs.ndim == 2 else outputs  # (T,)
    tags = np.array(task.labels, dtype=object)[numbers[features.word_starts].astype(np.int64)]
    sentences = np.split(tags, np.cumsum(features.num_words)[:-1])
    return [TagsPrediction(tuple(sentence)) for sentence in sentences]


def _decode_answers(
    features: Features,
    questions: Sequence[QaExample],
    outputs: tuple[NDArray[np.floating], NDArray[np.floating]],
    max_answer_length: int,
) -> list[AnswerPrediction]:
    decoded = decode_spans(
        *outputs,
        features.offsets,
        features.cu_seqlens,
        features.example_index,
        max_answer_length=max_answer_length,
    )
    answers = []
    for question, found in zip(questions, decoded, strict=True):
        candidates = tuple(
            AnswerCandidate(question.context[span.start : span.end], span.start, span.end, span.score)
            for span in found.spans
        )
        answers.append(AnswerPrediction(candidates[0].text if candidates else "", candidates, found.null_margin))
    return answers
