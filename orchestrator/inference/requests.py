"""Lines that a fine-tuned model is asked about, as examples of its task, and its predictions as JSON values."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from orchestrator.errors import InputError
from orchestrator.specs.task import Head
from orchestrator.storage.text_lines import check_has, parse_line
from orchestrator.tasks import (
    AnswerPrediction,
    ChoicePrediction,
    ClassificationExample,
    ClassPrediction,
    Example,
    LabelsPrediction,
    MultiLabelExample,
    MultipleChoiceExample,
    NerExample,
    Prediction,
    QaExample,
    RegressionExample,
    Task,
)

_KEYS: Mapping[Head, tuple[str, ...]] = {
    "classification": ("text", "text_pair"),
    "multi_label": ("text", "text_pair"),
    "multiple_choice": ("text", "choices"),
    "regression": ("text", "text_pair"),
    "embedding": ("text", "text_pair"),
    "ner": ("words",),
    "qa": ("question", "context"),
}


def read_line(line: str, number: int, task: Task) -> dict[str, Any]:
    """What a line says, by the keys that the task's head reads. Raises: InputError, naming the line."""
    read = parse_line(line, number)
    if isinstance(read, dict):
        return read
    if task.head in ("multiple_choice", "qa") or task.columns.names:
        keys = ", ".join((*_KEYS[task.head], *task.columns.names))
        raise InputError(f"line {number} is plain text; this model reads JSON objects with the keys {keys}")
    if task.head == "ner":
        return {"words": read.split()}
    first, tab, second = read.partition("\t")
    return {"text": first, "text_pair": second} if tab else {"text": first}


def to_example(values: dict[str, Any], number: int, task: Task) -> Example:
    """An example without a label. Raises: InputError, naming line and key."""
    name = str(values.get("id", number))
    if task.head == "qa":
        return QaExample(
            name, _text(values, "question", number, task.head), _text(values, "context", number, task.head)
        )
    if task.head == "ner":
        return NerExample(name, _texts(values, "words", 1, number))
    text = _text(values, "text", number, task.head)
    if task.head == "multiple_choice":
        return MultipleChoiceExample(name, text, _texts(values, "choices", 2, number))
    pair = None if values.get("text_pair") is None else _text(values, "text_pair", number, task.head)
    for column in task.columns.names:
        check_has(column, values, number)
    try:
        numbers, categories = task.columns.read(values)
    except ValueError as error:
        raise InputError(f"line {number}: {error}; null stands for a value that is missing") from None
    if task.head == "embedding":
        _check_pair(task, pair, number)
    if task.predicts == "regression":
        return RegressionExample(name, text, pair, numbers=numbers, categories=categories)
    kind = MultiLabelExample if task.head == "multi_label" else ClassificationExample
    return kind(name, text, pair, numbers=numbers, categories=categories)


def _check_pair(task: Task, pair: str | None, number: int) -> None:
    """Raise InputError unless the vectors of two texts can be compared as the model's objective says."""
    if task.predicts == "retrieval":
        raise InputError("this model finds a text's partner among others; ask it with `embed` or `search`")
    if pair is None:
        raise InputError(
            f"line {number}: this model compares two texts; give text and text_pair, or a tab between them; `embed` "
            "gives the vector of one text"
        )


def _text(values: dict[str, Any], key: str, number: int, head: Head) -> str:
    check_has(key, values, number)
    if not isinstance(values[key], str):
        raise InputError(f"line {number}: {key} must be text; the keys of {head} are {', '.join(_KEYS[head])}")
    return str(values[key])


def _texts(values: dict[str, Any], key: str, least: int, number: int) -> tuple[str, ...]:
    check_has(key, values, number)
    texts = values[key]
    if not isinstance(texts, list) or len(texts) < least or not all(isinstance(text, str) for text in texts):
        raise InputError(f"line {number}: {key} must be a list of texts" + (f", at least {least}" if least > 1 else ""))
    return tuple(texts)


def to_answer(prediction: Prediction, task: Task) -> dict[str, Any]:
    """A prediction as JSON values, probabilities by label."""
    if isinstance(prediction, ClassPrediction):
        return {"label": prediction.label, "probabilities": _by_label(prediction.probabilities, task)}
    if isinstance(prediction, LabelsPrediction):
        return {"labels": list(prediction.labels), "probabilities": _by_label(prediction.probabilities, task)}
    if isinstance(prediction, ChoicePrediction):
        return {"choice": prediction.choice, "probabilities": list(prediction.probabilities)}
    if isinstance(prediction, AnswerPrediction):
        return {"answer": prediction.text, "candidates": [asdict(some) for some in prediction.candidates[:3]]}
    return asdict(prediction)


def _by_label(probabilities: tuple[float, ...], task: Task) -> dict[str, float]:
    return dict(zip(task.labels, probabilities, strict=True))
