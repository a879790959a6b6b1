"""Predictions against the gold examples: the task's scores, the majority baseline, and a row per example to keep."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any, cast

from bert_core.metrics import (
    answer_scores,
    binary_metrics,
    classification_metrics,
    glue_metric_names,
    glue_metrics,
    multi_label_metrics,
    ner_f1,
    ner_f1_by_type,
    regression_metrics,
    retrieval_metrics,
    squad_scores,
)
from orchestrator.errors import TaskDataError
from orchestrator.results import Split
from orchestrator.specs.task import Head, Objective
from orchestrator.storage import write_bytes
from orchestrator.tasks.examples import (
    ClassificationExample,
    Example,
    MatchExample,
    MultiLabelExample,
    MultipleChoiceExample,
    NerExample,
    QaExample,
    QueryExample,
    RegressionExample,
)
from orchestrator.tasks.predictions import (
    AnswerPrediction,
    ChoicePrediction,
    ClassPrediction,
    LabelsPrediction,
    Prediction,
    RankingPrediction,
    TagsPrediction,
    ValuePrediction,
)
from orchestrator.tasks.task import PREDICTED_BY, Task

RANK_CUTOFFS = (10, 100)
"""Ranks down to which a ranking is looked at."""

_METRICS: Mapping[Head, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1", "matthews_correlation"),
    "multi_label": ("micro_f1", "macro_f1", "subset_accuracy", "label_ranking_average_precision"),
    "multiple_choice": ("accuracy",),
    "regression": ("pearson", "spearman"),
    "ner": ("f1", "precision", "recall"),
    "qa": ("f1", "exact_match"),
    "retrieval": tuple(f"{name}_at_{k}" for k in RANK_CUTOFFS for name in ("ndcg", "mrr", "recall")),
}
"""The scores of a task of one's own; the first one ranks."""


def default_metric(head: Head, objective: Objective | None = None) -> str:
    """The score that ranks a task of one's own; of cosines only the order counts."""
    if objective == "cosine":
        return "spearman"
    return _METRICS[head if objective is None else PREDICTED_BY[objective]][0]


def metric_names(task_id: str, head: Head, num_labels: int) -> tuple[str, ...]:
    """The scores that a task can be ranked by."""
    if glue_metric_names(task_id):
        return glue_metric_names(task_id)
    return (*_METRICS[head], "f1") if head == "classification" and num_labels == 2 else _METRICS[head]


def score(task: Task, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
    """The task's scores over a split, as the official scripts count them; a prediction for each example, in order.

    Tasks of GLUE have GLUE's scores. Others: `accuracy`, `macro_f1`, `matthews_correlation` (and `f1` of the second
    label where there are two); those of `multi_label_metrics`; `accuracy` of choices; `pearson`, `spearman`;
    those of `retrieval_metrics`; `precision`, `recall`, `f1` and `f1_TYPE`; `exact_match`, `f1`.
    """
    examples = task.examples(split)
    if len(predictions) != len(examples):
        raise TaskDataError(f"{len(predictions)} predictions for {len(examples)} examples of {task.id} {split}")
    if task.predicts == "regression":
        found = [prediction.value for prediction in cast(Sequence[ValuePrediction], predictions)]
        gold = [example.value or 0.0 for example in cast(Sequence[RegressionExample], examples)]
        return regression_metrics(found, gold)
    if task.predicts == "classification":
        return _class_scores(
            task,
            [prediction.label for prediction in cast(Sequence[ClassPrediction], predictions)],
            [str(example.label) for example in cast(Sequence[ClassificationExample], examples)],
        )
    if task.predicts == "multi_label":
        said = cast(Sequence[LabelsPrediction], predictions)
        meant = cast(Sequence[MultiLabelExample], examples)
        return multi_label_metrics(
            _indicators(task, [prediction.labels for prediction in said]),
            _indicators(task, [example.labels or () for example in meant]),
            [prediction.probabilities for prediction in said],
        )
    if task.predicts == "multiple_choice":
        chosen = [prediction.choice for prediction in cast(Sequence[ChoicePrediction], predictions)]
        right = [example.label for example in cast(Sequence[MultipleChoiceExample], examples)]
        return {"accuracy": fmean(a == b for a, b in zip(chosen, right, strict=True))}
    if task.predicts == "retrieval":
        rankings = [prediction.documents for prediction in cast(Sequence[RankingPrediction], predictions)]
        judged = cast(Sequence[MatchExample | QueryExample], examples)
        return retrieval_metrics(
            {example.id: ranking for example, ranking in zip(judged, rankings, strict=True)},
            {example.id: example.gains for example in judged},
            RANK_CUTOFFS,
        )
    if task.predicts == "ner":
        tags = [prediction.tags for prediction in cast(Sequence[TagsPrediction], predictions)]
        gold_tags = [example.tags for example in cast(Sequence[NerExample], examples)]
        by_type = ner_f1_by_type(tags, gold_tags)
        return {**ner_f1(tags, gold_tags), **{f"f1_{kind}": scores["f1"] for kind, scores in by_type.items()}}
    questions = cast(Sequence[QaExample], examples)
    answers = cast(Sequence[AnswerPrediction], predictions)
    texts = {question.id: answer.text for question, answer in zip(questions, answers, strict=True)}
    return squad_scores(texts, {question.id: _gold_texts(question) for question in questions})


def _class_scores(task: Task, predicted: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    number = {label: i for i, label in enumerate(task.labels)}
    numbers = [number[label] for label in predicted], [number[label] for label in gold]
    if glue_metric_names(task.id):
        return glue_metrics(task.id, *numbers)
    return binary_metrics(*numbers) if len(task.labels) == 2 else classification_metrics(*numbers)


def _indicators(task: Task, labels: Sequence[Sequence[str]]) -> list[list[bool]]:
    """(N, C)"""
    return [[label in some for label in task.labels] for some in labels]


def _gold_texts(question: QaExample) -> list[str]:
    return [answer.text for answer in question.answers]


def majority_baseline(task: Task, split: Split) -> dict[str, float]:
    """The scores of what can be said without reading the text, learnt from the training split where there is one.

    The most frequent class or place of the right choice; the labels that more than half of the examples have; the mean
    value; `O` for every word; no answer where questions may be unanswerable, else the passage's first words, as many
    as half of the answers have; the same order of documents for every query.
    """
    learnt = task.examples("train" if "train" in task.files else split)
    examples = task.examples(split)
    predictions: list[Prediction]
    if task.predicts == "regression":
        mean = fmean(example.value or 0.0 for example in cast(Sequence[RegressionExample], learnt))
        predictions = [ValuePrediction(mean)] * len(examples)
    elif task.predicts == "classification":
        counts = Counter(str(example.label) for example in cast(Sequence[ClassificationExample], learnt))
        predictions = [ClassPrediction(max(task.labels, key=lambda label: counts[label]))] * len(examples)
    elif task.predicts == "multi_label":
        rows = _indicators(task, [e.labels or () for e in cast(Sequence[MultiLabelExample], learnt)])
        shares = [fmean(column) for column in zip(*rows, strict=True)]
        predictions = [LabelsPrediction.from_probabilities(task.labels, shares)] * len(examples)
    elif task.predicts == "multiple_choice":
        places = Counter(example.label or 0 for example in cast(Sequence[MultipleChoiceExample], learnt))
        predictions = [ChoicePrediction(max(sorted(places), key=lambda place: places[place]))] * len(examples)
    elif task.predicts == "retrieval":
        found = tuple(example.id for example in examples[: max(RANK_CUTOFFS)])
        predictions = [RankingPrediction(found)] * len(examples)
    elif task.predicts == "ner":
        predictions = [TagsPrediction(("O",) * len(e.words)) for e in cast(Sequence[NerExample], examples)]
    elif task.unanswerable:
        predictions = [AnswerPrediction("")] * len(examples)
    else:
        lengths = [len(e.answers[0].text.split()) for e in cast(Sequence[QaExample], learnt) if e.answers]
        num_words = int(median(lengths))
        questions = cast(Sequence[QaExample], examples)
        predictions = [AnswerPrediction(" ".join(q.context.split()[:num_words])) for q in questions]
    return score(task, split, predictions)


def prediction_rows(task: Task, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
    """A JSON-ready record per example: `id`, `prediction`, `gold`, whether or how well they agree, and what is known
    of the model's doubt.
    """
    return [
        {"id": example.id, **_row(task, example, prediction)}
        for example, prediction in zip(task.examples(split), predictions, strict=True)
    ]


def _row(task: Task, example: Example, prediction: Prediction) -> dict[str, Any]:
    if isinstance(example, ClassificationExample) and isinstance(prediction, ClassPrediction):
        doubt = dict(zip(task.labels, prediction.probabilities, strict=False))
        same = prediction.label == example.label
        return {"prediction": prediction.label, "gold": example.label, "correct": same, "probabilities": doubt}
    if isinstance(example, MultiLabelExample) and isinstance(prediction, LabelsPrediction):
        return {
            "prediction": list(prediction.labels),
            "gold": list(example.labels or ()),
            "correct": set(prediction.labels) == set(example.labels or ()),
            "probabilities": dict(zip(task.labels, prediction.probabilities, strict=True)),
        }
    if isinstance(example, MultipleChoiceExample) and isinstance(prediction, ChoicePrediction):
        return {
            "prediction": prediction.choice,
            "gold": example.label,
            "correct": prediction.choice == example.label,
            "probabilities": list(prediction.probabilities),
        }
    if isinstance(example, RegressionExample) and isinstance(prediction, ValuePrediction):
        return {
            "prediction": prediction.value,
            "gold": example.value,
            "error": prediction.value - (example.value or 0.0),
        }
    if isinstance(example, MatchExample | QueryExample) and isinstance(prediction, RankingPrediction):
        return {
            "prediction": list(prediction.documents),
            "gold": dict(example.gains),
            "found": any(example.gains.get(document, 0.0) > 0 for document in prediction.documents[: RANK_CUTOFFS[0]]),
        }
    if isinstance(example, NerExample) and isinstance(prediction, TagsPrediction):
        same = prediction.tags == example.tags
        tags = {"prediction": list(prediction.tags), "gold": list(example.tags)}
        return {"words": list(example.words), **tags, "correct": same}
    assert isinstance(example, QaExample), "predictions of another task"
    assert isinstance(prediction, AnswerPrediction), "predictions of another task"
    exact, f1 = answer_scores(prediction.text, _gold_texts(example), unanswerable=task.unanswerable)
    return {
        "prediction": prediction.text,
        "gold": _gold_texts(example),
        "exact_match": exact,
        "f1": f1,
        "candidates": [{"text": c.text, "start": c.start, "score": c.score} for c in prediction.candidates],
        "null_margin": prediction.null_margin,
    }


def write_prediction_rows(path: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows as JSONL, whole or not at all; returns the file's SHA-256."""
    return write_bytes(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
