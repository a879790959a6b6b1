"""Scores of spans: entities as `conlleval` counts them, answers as SQuAD's official scripts do (exact match and F1).

An entity is right when its first word, its last word and its type are (Tjong Kim Sang & De Meulder 2003). Version 1.1
of SQuAD (Rajpurkar et al. 2016, section 6.1) and version 2.0 (Rajpurkar et al. 2018), where some question is
unanswerable, differ in answers that hold nothing but articles and punctuation, which 2.0 takes for no answer.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from bert_core.errors import DataError

EntitySpan = tuple[int, int, str]
"""An entity: its first word, the word past its last, and its type."""


def ner_f1(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, float]:
    """Compute `precision`, `recall` and `f1` over all entities of all sentences; tags are BIO or IOB1.

    A score whose denominator is 0 is 0. Raises: DataError when the two do not line up, or for a tag that is not BIO.
    """
    found, wanted, right = _count_entities(predicted, gold)
    return _scores(found.total(), wanted.total(), right.total())


def ner_f1_by_type(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, dict[str, float]]:
    """Compute the scores of `ner_f1` for each type of entity that occurs, types sorted. Raises: DataError."""
    found, wanted, right = _count_entities(predicted, gold)
    return {kind: _scores(found[kind], wanted[kind], right[kind]) for kind in sorted(found | wanted)}


def entity_spans(tags: Iterable[str]) -> list[EntitySpan]:
    """Find the entities of one sentence. `B-` always begins one, `I-` does where the word before is of another type.

    Raises: DataError.
    """
    spans: list[EntitySpan] = []
    start, current = 0, ""
    position = -1
    for position, tag in enumerate(tags):
        prefix, kind = tag[:2], tag[2:]
        if tag == "O":
            kind = ""
        elif prefix not in ("B-", "I-") or not kind:
            raise DataError(f"tag {tag!r} is not O, B-type or I-type")
        if current and (prefix == "B-" or kind != current):
            spans.append((start, position, current))
        if kind and (prefix == "B-" or kind != current):
            start = position
        current = kind
    if current:
        spans.append((start, position + 1, current))
    return spans


def _count_entities(
    predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Count entities by type: predicted ones, gold ones, and those that are both."""
    if len(predicted) != len(gold):
        raise DataError(f"{len(predicted)} predicted sentences for {len(gold)} gold ones; there must be one for each")
    found: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for number, (predicted_tags, gold_tags) in enumerate(zip(predicted, gold, strict=True)):
        if len(predicted_tags) != len(gold_tags):
            raise DataError(
                f"sentence {number} has {len(predicted_tags)} predicted tags for {len(gold_tags)} gold ones; "
                "there must be one for each word"
            )
        predicted_spans, gold_spans = entity_spans(predicted_tags), entity_spans(gold_tags)
        found.update(kind for _, _, kind in predicted_spans)
        wanted.update(kind for _, _, kind in gold_spans)
        right.update(kind for _, _, kind in set(predicted_spans) & set(gold_spans))
    return found, wanted, right


def _scores(num_found: int, num_wanted: int, num_right: int) -> dict[str, float]:
    return {
        "precision": num_right / num_found if num_found else 0.0,
        "recall": num_right / num_wanted if num_wanted else 0.0,
        "f1": 2.0 * num_right / (num_found + num_wanted) if num_right else 0.0,
    }


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
