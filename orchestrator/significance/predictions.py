"""Kept predictions of models: their kinds, and scores of the examples that are drawn from them."""

import re
from collections.abc import Callable, Mapping, Sequence
from operator import eq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_core.metrics import entity_spans
from orchestrator.significance.comparison import Numbers, ScoreOfWeights

PredictionRow = Mapping[str, Any]
Pair = tuple[PredictionRow, PredictionRow]
"""Rows of two models on the same example."""
CLASS, TAGS, VALUE, ANSWER, OTHER = "class", "list of tags", "value", "answer", "list or choice"
"""Kinds of predictions, in words."""
_TAG = re.compile(r"O|[BI]-.+", re.DOTALL)
_SIDES, _NUMBER = ("prediction", "gold"), int | float


def prediction_kind(row: Any) -> str | None:
    """Kind of a prediction's row: CLASS, TAGS, VALUE, ANSWER or OTHER; None for an invalid row."""
    if not isinstance(row, dict) or not row.keys() >= {*_SIDES} or not isinstance(row.get("id", ""), str | int):
        return None
    sides, given = [row[side] for side in _SIDES], row.get("probabilities", [])
    numbers = [*given.values()] if isinstance(given, dict) else given
    items = [item for side in sides if isinstance(side, list) for item in side]
    is_sound = _all_of(_NUMBER, numbers) and _all_of(_NUMBER, [row.get("error", 0)])
    if not is_sound or not all(isinstance(item, str | _NUMBER) for item in items):
        return None
    if "words" in row:
        has_tags = all(_all_of(str, side) and all(map(_TAG.fullmatch, side)) for side in sides)
        return TAGS if has_tags and _all_of(str, row["words"]) else None
    if "exact_match" in row:
        has_scores = _all_of(_NUMBER, [row["exact_match"], row.get("f1")])
        return ANSWER if has_scores and isinstance(sides[0], str) and isinstance(sides[1], list) else None
    if _all_of(str, sides):
        return CLASS
    # The place of a choice is a number, too, but right or wrong.
    return VALUE if _all_of(_NUMBER, sides) and "correct" not in row else OTHER


def _all_of(kind: Any, values: object) -> bool:
    """Whether it is a list of values of one type; true and false are no numbers."""
    return isinstance(values, list) and all(isinstance(one, kind) and not isinstance(one, bool) for one in values)


_Score = tuple[Callable[[Sequence[PredictionRow]], Numbers | None], Callable[[Numbers], ScoreOfWeights]]
"""Functions from N rows to K numbers of each, (N, K), or None where rows lack what these are made of; and from these
numbers to the score of the examples that are drawn."""


def scores_for(
    metric: str, first: Sequence[PredictionRow], second: Sequence[PredictionRow]
) -> tuple[ScoreOfWeights, ScoreOfWeights] | None:
    """Score of each model's rows over resampled examples; None where rows lack the score's parts."""
    for count, score in _SCORES.get(metric, ()):
        counts = count([*first, *second])
        if counts is not None:
            return score(counts[: len(first)]), score(counts[len(first) :])
    return None


def _from_sums(score: Callable[[Numbers], Numbers]) -> Callable[[Numbers], ScoreOfWeights]:
    """Score from the weighted sums (R, K) of K numbers of each example."""
    return lambda counts: lambda weights: score(weights @ counts)


def _rows_have(kind: Any, rows: Sequence[PredictionRow], names: Sequence[str] = _SIDES) -> bool:
    return all(isinstance(row.get(name), kind) for row in rows for name in names)


def _mean_of(name: str) -> _Score:
    """Mean of a value that each row has itself."""
    return (
        lambda rows: np.array([(row[name], 1.0) for row in rows]) if _rows_have(_NUMBER, rows, (name,)) else None,
        _MEAN,
    )


def _both_values(rows: Sequence[PredictionRow]) -> Numbers | None:
    return np.array([[row[side] for side in _SIDES] for row in rows], float) if _rows_have(_NUMBER, rows) else None


def _count_parts(rows: Sequence[PredictionRow]) -> Numbers | None:
    """Hits, guesses and gold parts of each row, as entities or selected sentences."""
    if not _rows_have(list, rows):
        return None
    pairs = [[set(entity_spans(row[side])) if "words" in row else set(row[side]) for side in _SIDES] for row in rows]
    return np.array([(len(guesses & gold), len(guesses), len(gold)) for guesses, gold in pairs], float)


def _count_classes(rows: Sequence[PredictionRow]) -> Numbers | None:
    """Hits, guesses and gold examples of each class, in the order of the labels, as indicators: (N, 3C).

    Each row says the probabilities of the same labels, of which its prediction and its gold label are.
    """
    labels: Any = rows[0].get("probabilities")
    if not _rows_have(dict, rows, ("probabilities",)) or any(
        row["probabilities"].keys() != labels.keys() for row in rows
    ):
        return None
    if not _rows_have(str, rows) or any(row[side] not in labels for row in rows for side in _SIDES):
        return None
    guesses, gold = (np.array([[row[side] == label for label in labels] for row in rows], float) for side in _SIDES)
    return np.hstack([guesses * gold, guesses, gold])


def _count_right_words(rows: Sequence[PredictionRow]) -> Numbers | None:
    if not _rows_have(list, rows):
        return None
    return np.array([(sum(map(eq, row["prediction"], row["gold"])), len(row["gold"])) for row in rows], float)


def _from_hits(score: Callable[[Numbers, Numbers, Numbers], Numbers]) -> Callable[[Numbers], ScoreOfWeights]:
    """Score from hits, predictions and gold counts by class, (R, C) each."""
    return _from_sums(lambda sums: score(*np.hsplit(sums, 3)))


def _f1(hits: Numbers, guesses: Numbers, gold: Numbers) -> Numbers:
    """F1 by class, 0 for an absent one: (R, C)."""
    return _quotient(2 * hits, guesses + gold)


def _macro_f1(hits: Numbers, guesses: Numbers, gold: Numbers) -> Numbers:
    return _quotient(_f1(hits, guesses, gold).sum(axis=1), (guesses + gold > 0).sum(axis=1))


def _matthews(hits: Numbers, guesses: Numbers, gold: Numbers) -> Numbers:
    """Correlation of class indicators (Gorodkin 2004), by the counts of the confusion matrix."""
    total = gold.sum(axis=1)
    covariance = hits.sum(axis=1) * total - (guesses * gold).sum(axis=1)
    scale = np.sqrt((total**2 - (guesses**2).sum(axis=1)) * (total**2 - (gold**2).sum(axis=1)))
    return _quotient(covariance, scale)


def _quotient(numerator: NDArray[Any], denominator: NDArray[Any]) -> Numbers:
    """Quotient; 0 for a denominator of 0, as in the scores themselves."""
    quotient: Numbers = np.zeros_like(numerator, dtype=float)
    np.divide(numerator, denominator, out=quotient, where=denominator > 0)
    return quotient


def correlation_of(first: Numbers, second: Numbers, *, of_ranks: bool) -> ScoreOfWeights:
    """Correlation of two values of each example (N,), where examples count as often as they are drawn.

    It is 0 where the values of a side are all equal, as the metrics themselves have it.

    Source: Pearson (1895), Note on regression and inheritance in the case of two parents; Spearman (1904), The proof
    and measurement of association between two things: Pearson's correlation of ranks, equal values sharing the mean of
    theirs.
    """
    sides = [_ranks_of(values) if of_ranks else values for values in (first, second)]

    def score(weights: Numbers) -> Numbers:
        total = weights.sum(axis=1, keepdims=True)
        drawn = (side(weights) if callable(side) else side for side in sides)
        x, y = (values - (weights * values).sum(axis=1, keepdims=True) / total for values in drawn)  # (R, N)
        covariance, *variances = (np.einsum("rn,rn,rn->r", weights, *both) for both in ((x, y), (x, x), (y, y)))
        scale = np.sqrt(variances[0] * variances[1])
        correlation: Numbers = np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0)
        return correlation

    return score


def _ranks_of(values: Numbers) -> Callable[[Numbers], Numbers]:
    """Function from weights (R, N) to the examples' ranks (R, N) among all that are drawn, equal values sharing theirs.

    Values are sorted once: what is drawn changes how many stand below a value, not their order.
    """
    order = np.argsort(values)
    _, begins, place = np.unique(values[order], return_index=True, return_inverse=True)
    place_of_example = np.empty_like(place)
    place_of_example[order] = place

    def ranks(weights: Numbers) -> Numbers:
        equal = np.add.reduceat(weights[:, order], begins, axis=1)
        shared: Numbers = equal.cumsum(axis=1) - (equal - 1) / 2
        return shared[:, place_of_example]

    return ranks


_MEAN = _from_sums(lambda sums: _quotient(sums[:, 0], sums[:, 1]))
_PART_F1 = (_count_parts, _from_hits(lambda *counts: _f1(*counts)[:, 0]))
OF_RIGHT_ANSWERS = {"accuracy": "correct", "subset_accuracy": "correct", "exact_match": "exact_match"}
"""Scores that are the share of right answers, as McNemar's test counts them, with the key of a row's correctness."""
_SCORES: Mapping[str, Sequence[_Score]] = {
    **{metric: (_mean_of(key),) for metric, key in OF_RIGHT_ANSWERS.items()},
    "f1": (_mean_of("f1"), (_count_classes, _from_hits(lambda *counts: _f1(*counts)[:, 1])), _PART_F1),
    "micro_f1": (_PART_F1,),
    "macro_f1": ((_count_classes, _from_hits(_macro_f1)),),
    "matthews_correlation": ((_count_classes, _from_hits(_matthews)),),
    "precision": ((_count_parts, _MEAN),),
    "recall": ((_count_parts, _from_sums(lambda sums: _quotient(sums[:, 0], sums[:, 2]))),),
    "word_accuracy": ((_count_right_words, _MEAN),),
    "pearson": ((_both_values, lambda values: correlation_of(*values.T, of_ranks=False)),),
    "spearman": ((_both_values, lambda values: correlation_of(*values.T, of_ranks=True)),),
}
"""Resampled scores by metric; the first one that fits the rows is used."""


def same_examples(first: Sequence[PredictionRow], second: Sequence[PredictionRow]) -> dict[Any, Pair] | None:
    """Pair the rows of the same examples, by id; None unless both sides have just the same ones, with the same gold."""
    one, other = ({row.get("id"): row for row in rows} for rows in (first, second))
    if not one or None in one or one.keys() != other.keys() or not len(first) == len(second) == len(one):
        return None
    is_same = all(row["gold"] == other[number]["gold"] for number, row in one.items())
    return {number: (row, other[number]) for number, row in one.items()} if is_same else None
