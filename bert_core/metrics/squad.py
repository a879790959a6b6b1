"""Exact match and F1 of answers, as SQuAD's official scripts count them.

Version 1.1 (Rajpurkar et al. 2016, section 6.1), and version 2.0 (Rajpurkar et al. 2018) where some question is
unanswerable: they differ in answers that hold nothing but articles and punctuation, which 2.0 takes for no answer.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

from bert_core.errors import DataError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad_scores(predictions: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Compute `exact_match` and `f1` over the questions of `references`; an empty list of answers means unanswerable.

    Where some question is unanswerable, also `HasAns_exact` and `HasAns_f1` (unless all are), `NoAns_exact` and
    `NoAns_f1`; its right prediction is the empty text. A question without a prediction scores 0, predictions for
    other questions are left aside. Raises: DataError when there is no question, or a prediction is not text.
    """
    if not references:
        raise DataError("there is no question to score; references are {id: [answers]}")
    unanswerable = any(not answers for answers in references.values())
    scored = {
        key: answer_scores(predictions[key], answers, unanswerable=unanswerable) if key in predictions else (0.0, 0.0)
        for key, answers in references.items()
    }
    results = _averages(list(scored.values()), "exact_match", "f1")
    if unanswerable:
        answerable = [scored[key] for key, answers in references.items() if answers]
        rest = [scored[key] for key, answers in references.items() if not answers]
        results |= _averages(answerable, "HasAns_exact", "HasAns_f1") if answerable else {}
        results |= _averages(rest, "NoAns_exact", "NoAns_f1")
    return results


def answer_scores(prediction: str, answers: Sequence[str], *, unanswerable: bool) -> tuple[float, float]:
    """Compute exact match and F1 of one answer, each the best over the gold answers.

    Without gold answers, the empty answer is right.

    `unanswerable` says whether the data set has such questions (version 2.0). Raises: DataError.
    """
    if not isinstance(prediction, str) or isinstance(answers, str):
        raise DataError(f"predictions are {{id: text}} and references {{id: [texts]}}; got {prediction!r}, {answers!r}")
    said = normalize_answer(prediction)
    golds = [normalize_answer(answer) for answer in answers]
    if unanswerable or not golds:
        golds = [gold for gold in golds if gold] or [""]
    return float(said in golds), max(_word_f1(said.split(), gold.split(), unanswerable) for gold in golds)


def normalize_answer(text: str) -> str:
    """Normalize an answer: lower case, no punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _word_f1(said: list[str], gold: list[str], unanswerable: bool) -> float:
    if unanswerable and not (said and gold):
        return float(said == gold)
    shared = (Counter(said) & Counter(gold)).total()
    return 2.0 * shared / (len(said) + len(gold)) if shared else 0.0


def _averages(scores: Sequence[tuple[float, float]], exact_name: str, f1_name: str) -> dict[str, float]:
    exacts, f1s = zip(*scores, strict=True)
    return {exact_name: sum(exacts) / len(exacts), f1_name: sum(f1s) / len(f1s)}
