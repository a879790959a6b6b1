"""Predictions that runs kept: read from their files, scored over drawn examples, and compared between two groups."""

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from operator import eq
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bert_core.metrics.spans import entity_spans
from orchestrator.errors import InputError, OrchestratorError
from orchestrator.registry.group_records import GroupRecord, GroupRun
from orchestrator.significance.comparison import DifferenceResult, McNemarResult, compare_answers, holm
from orchestrator.significance.resampling import Numbers, ScoreOfWeights, compare_over_examples, correlation_of
from orchestrator.storage import read_bytes

logger = logging.getLogger(__name__)
PredictionRow = Mapping[str, Any]
Pair = tuple[PredictionRow, PredictionRow]
"""Rows of two models on the same example."""
CLASS, TAGS, VALUE, ANSWER, OTHER = "class", "list of tags", "value", "answer", "list or choice"
"""Kinds of predictions, in words."""
_TAG = re.compile(r"O|[BI]-.+", re.DOTALL)
_SIDES, _NUMBER = ("prediction", "gold"), int | float


def read_predictions(path: str) -> list[PredictionRow]:
    """Read a file of predictions, which are all of one kind.

    Raises: InputError where the file is not there, or a line of it is no prediction, which is named.
    """
    rows: list[PredictionRow] = []
    first = None
    try:
        for number, line in enumerate(read_bytes(path).decode().split("\n"), start=1):
            if not line.strip():
                continue
            rows.append(json.loads(line))
            kind = prediction_kind(rows[-1])
            first = first or kind
            if kind is None:
                raise ValueError(f"line {number} is no prediction beside what is right, in a form that a task keeps")
            if kind != first:
                raise ValueError(f"line {number} predicts a {kind}, and those before it a {first}")
    except (OSError, ValueError, OrchestratorError) as error:
        raise InputError(f"The predictions at {path} cannot be read: {error}") from error
    return rows


def prediction_kind(row: Any) -> str | None:
    """Kind of prediction that a row says it is: CLASS, TAGS, VALUE, ANSWER or OTHER; None for what is none."""
    if not isinstance(row, dict) or not row.keys() >= {*_SIDES} or not isinstance(row.get("id", ""), str | int):
        return None
    sides, given = [row[side] for side in _SIDES], row.get("probabilities", [])
    numbers = [*given.values()] if isinstance(given, dict) else given
    items = [item for side in sides if isinstance(side, list) for item in side]
    is_sound = _are(_NUMBER, numbers) and _are(_NUMBER, [row.get("error", 0)])
    if not is_sound or not all(isinstance(item, str | _NUMBER) for item in items):
        return None
    if "words" in row:
        has_tags = all(_are(str, side) and all(map(_TAG.fullmatch, side)) for side in sides)
        return TAGS if has_tags and _are(str, row["words"]) else None
    if "exact_match" in row:
        has_scores = _are(_NUMBER, [row["exact_match"], row.get("f1")])
        return ANSWER if has_scores and isinstance(sides[0], str) and isinstance(sides[1], list) else None
    if _are(str, sides):
        return CLASS
    # The place of a choice is a number, too, but right or wrong.
    return VALUE if _are(_NUMBER, sides) and "correct" not in row else OTHER


def _are(kind: Any, values: object) -> bool:
    """Whether it is a list of values of one type; true and false are no numbers."""
    return isinstance(values, list) and all(isinstance(one, kind) and not isinstance(one, bool) for one in values)


_Way = tuple[Callable[[Sequence[PredictionRow]], Numbers | None], Callable[[Numbers], ScoreOfWeights]]
"""Functions from N rows to K numbers of each, (N, K), or None where rows lack what these are made of; and from these
numbers to the score of the examples that are drawn."""


def scores_for(
    metric: str, first: Sequence[PredictionRow], second: Sequence[PredictionRow]
) -> tuple[ScoreOfWeights, ScoreOfWeights] | None:
    """Scores of two models' rows over examples that are drawn; None where rows lack what a score is made of."""
    for count, score in _WAYS.get(metric, ()):
        counts = count([*first, *second])
        if counts is not None:
            return score(counts[: len(first)]), score(counts[len(first) :])
    return None


def _of_sums(score: Callable[[Numbers], Numbers]) -> Callable[[Numbers], ScoreOfWeights]:
    """A score that is made of the sums (R, K) of K numbers of each example that is drawn."""
    return lambda counts: lambda weights: score(weights @ counts)


def _have(kind: Any, rows: Sequence[PredictionRow], names: Sequence[str] = _SIDES) -> bool:
    return all(isinstance(row.get(name), kind) for row in rows for name in names)


def _own(name: str) -> _Way:
    """Mean of a value that each row has itself."""
    return (
        lambda rows: np.array([(row[name], 1.0) for row in rows]) if _have(_NUMBER, rows, (name,)) else None,
        _MEAN,
    )


def _values(rows: Sequence[PredictionRow]) -> Numbers | None:
    return np.array([[row[side] for side in _SIDES] for row in rows], float) if _have(_NUMBER, rows) else None


def _parts(rows: Sequence[PredictionRow]) -> Numbers | None:
    """Hits, guesses and gold parts of each row, as entities or selected sentences."""
    if not _have(list, rows):
        return None
    pairs = [[set(entity_spans(row[side])) if "words" in row else set(row[side]) for side in _SIDES] for row in rows]
    return np.array([(len(guesses & gold), len(guesses), len(gold)) for guesses, gold in pairs], float)


def _classes(rows: Sequence[PredictionRow]) -> Numbers | None:
    """Hits, guesses and gold examples of each class, in the order of the labels, as indicators: (N, 3C).

    Each row says the probabilities of the same labels, of which its prediction and its gold label are.
    """
    labels: Any = rows[0].get("probabilities")
    if not _have(dict, rows, ("probabilities",)) or any(row["probabilities"].keys() != labels.keys() for row in rows):
        return None
    if not _have(str, rows) or any(row[side] not in labels for row in rows for side in _SIDES):
        return None
    guesses, gold = (np.array([[row[side] == label for label in labels] for row in rows], float) for side in _SIDES)
    return np.hstack([guesses * gold, guesses, gold])


def _right_words(rows: Sequence[PredictionRow]) -> Numbers | None:
    if not _have(list, rows):
        return None
    return np.array([(sum(map(eq, row["prediction"], row["gold"])), len(row["gold"])) for row in rows], float)


def _of_hits(score: Callable[[Numbers, Numbers, Numbers], Numbers]) -> Callable[[Numbers], ScoreOfWeights]:
    """A score that is made of hits, guesses and gold parts, of each class (R, C)."""
    return _of_sums(lambda sums: score(*np.hsplit(sums, 3)))


def _f1(hits: Numbers, guesses: Numbers, gold: Numbers) -> Numbers:
    """F1 of each class, 0 of one that does not occur: (R, C)."""
    return _ratio(2 * hits, guesses + gold)


def _macro_f1(hits: Numbers, guesses: Numbers, gold: Numbers) -> Numbers:
    return _ratio(_f1(hits, guesses, gold).sum(axis=1), (guesses + gold > 0).sum(axis=1))


def _matthews(hits: Numbers, guesses: Numbers, gold: Numbers) -> Numbers:
    """Correlation of class indicators (Gorodkin 2004), by the counts of the confusion matrix."""
    total = gold.sum(axis=1)
    covariance = hits.sum(axis=1) * total - (guesses * gold).sum(axis=1)
    scale = np.sqrt((total**2 - (guesses**2).sum(axis=1)) * (total**2 - (gold**2).sum(axis=1)))
    return _ratio(covariance, scale)


def _ratio(numerator: NDArray[Any], denominator: NDArray[Any]) -> Numbers:
    """Quotient; 0 where there is nothing to divide by, as the scores themselves have it."""
    quotient: Numbers = np.zeros_like(numerator, dtype=float)
    np.divide(numerator, denominator, out=quotient, where=denominator > 0)
    return quotient


_MEAN = _of_sums(lambda sums: _ratio(sums[:, 0], sums[:, 1]))
_F1_OF_PARTS = (_parts, _of_hits(lambda *counts: _f1(*counts)[:, 0]))
OF_RIGHT_ANSWERS = {"accuracy": "correct", "subset_accuracy": "correct", "exact_match": "exact_match"}
"""Scores that are the share of right answers, which McNemar's test compares, and the key by which a row is right."""
_WAYS: Mapping[str, Sequence[_Way]] = {
    **{metric: (_own(key),) for metric, key in OF_RIGHT_ANSWERS.items()},
    "f1": (_own("f1"), (_classes, _of_hits(lambda *counts: _f1(*counts)[:, 1])), _F1_OF_PARTS),
    "micro_f1": (_F1_OF_PARTS,),
    "macro_f1": ((_classes, _of_hits(_macro_f1)),),
    "matthews_correlation": ((_classes, _of_hits(_matthews)),),
    "precision": ((_parts, _MEAN),),
    "recall": ((_parts, _of_sums(lambda sums: _ratio(sums[:, 0], sums[:, 2]))),),
    "word_accuracy": ((_right_words, _MEAN),),
    "pearson": ((_values, lambda values: correlation_of(*values.T, of_ranks=False)),),
    "spearman": ((_values, lambda values: correlation_of(*values.T, of_ranks=True)),),
}
"""Ways for each score, of which the first that fits the rows is taken."""


def same_examples(first: Sequence[PredictionRow], second: Sequence[PredictionRow]) -> dict[Any, Pair] | None:
    """Pair the rows of the same examples, by id; None unless both sides have just the same ones, with the same gold."""
    one, other = ({row.get("id"): row for row in rows} for rows in (first, second))
    if not one or None in one or one.keys() != other.keys() or not len(first) == len(second) == len(one):
        return None
    is_same = all(row["gold"] == other[number]["gold"] for number, row in one.items())
    return {number: (row, other[number]) for number, row in one.items()} if is_same else None


class AnswerComparison(NamedTuple):
    """McNemar's test of two runs' answers."""

    first_run: str
    second_run: str
    result: McNemarResult
    corrected_p_value: float
    """Exact p-value, corrected by Holm's method for the pairs of runs."""


class ExampleComparison(NamedTuple):
    """Two groups over the same examples, the first one's score minus the second one's.

    Runs are paired by their seed; where the groups have none in common, one run of each is taken, the best one.
    """

    num_examples: int
    answers: Sequence[AnswerComparison]
    """Comparison of right and wrong answers, for each pair of runs; empty where answers are not right or wrong."""
    answers_about: str
    """Name of what McNemar's test counts."""
    score: DifferenceResult | None
    """Difference of the score, the mean over the pairs of runs; None for a score that the kept rows do not give."""
    result: McNemarResult | DifferenceResult
    """Result of the test that speaks: McNemar's of the only pair, where it is about the score, or the bootstrap."""
    test: str
    """Test that speaks, in words."""


def compare_examples(first: GroupRecord, second: GroupRecord) -> ExampleComparison | None:
    """Compare two groups by kept predictions; None where there are none of the same examples, or nothing to count."""
    pairs: dict[tuple[str, str], dict[Any, Pair]] = {}
    for one, other in _pairs_of_runs(first, second):
        if side_by_side := same_examples(_rows_of(one), _rows_of(other)):
            pairs[one[0].id, other[0].id] = side_by_side
    if not pairs:
        return None
    answers, score = _compare_answers(pairs), _compare_scores(first.metric, list(pairs.values()))
    num_examples, is_of_score = len(next(iter(pairs.values()))), first.metric in OF_RIGHT_ANSWERS
    about = "right answers" if is_of_score else "wholly right examples"
    if len(answers) == 1 and (is_of_score or score is None):
        result: McNemarResult | DifferenceResult | None = answers[0].result
        test = "McNemar's exact test" if is_of_score else f"McNemar's exact test of {about}"
    else:
        result, test = score, "paired bootstrap"
    if result is None:
        return None
    return ExampleComparison(num_examples, answers, about, score, result, f"{test} over {num_examples:,} examples")


def _pairs_of_runs(first: GroupRecord, second: GroupRecord) -> list[tuple[list[GroupRun], list[GroupRun]]]:
    """Runs that kept predictions, paired by seed; the runs of a seed's folds stand together, as one."""
    sides: list[dict[int, dict[int, GroupRun]]] = [{}, {}]
    for group, by_seed in zip((first, second), sides, strict=True):
        for run in group.runs:
            if run.is_scored and run.predictions_path and run.seed is not None:
                by_seed.setdefault(run.seed, {})[run.fold or 0] = run
    if common := sorted(sides[0].keys() & sides[1].keys()):
        one, other = ([[own[seed][fold] for fold in sorted(own[seed])] for seed in common] for own in sides)
        return list(zip(one, other, strict=True))
    best = [[group.best] for group in (first, second) if group.best is not None and group.best.predictions_path]
    return [(best[0], best[1])] if len(best) == 2 else []


def _rows_of(runs: Sequence[GroupRun]) -> list[PredictionRow]:
    """Rows that runs kept; none of a file that is not there any more, or has no predictions."""
    rows: list[PredictionRow] = []
    for run in runs:
        try:
            rows += read_predictions(run.predictions_path or "")
        except InputError as error:
            logger.warning(str(error))
    return rows


def _compare_answers(pairs: Mapping[tuple[str, str], Mapping[Any, Pair]]) -> list[AnswerComparison]:
    """Compare the answers of each pair of runs; none where answers are not right or wrong, but near or far."""
    results = []
    for rows in pairs.values():
        keys = set[str].intersection(*({*row} for both in rows.values() for row in both))
        key = "correct" if "correct" in keys else "exact_match"
        if key not in keys:
            return []
        results.append(
            compare_answers(*([bool(row[key]) for row in side] for side in zip(*rows.values(), strict=True)))
        )
    corrected = holm([result.p_value for result in results])
    return [
        AnswerComparison(*ids, *both) for ids, both in zip(pairs, zip(results, corrected, strict=True), strict=True)
    ]


def _compare_scores(metric: str, pairs: Sequence[Mapping[Any, Pair]]) -> DifferenceResult | None:
    """Compare the mean score over the pairs of runs: the examples that are drawn are the same for every run."""
    scores: list[tuple[ScoreOfWeights, ScoreOfWeights]] = []
    for rows in pairs:
        if rows.keys() != pairs[0].keys():
            return None
        found = scores_for(metric, *zip(*(rows[example] for example in pairs[0]), strict=True))
        if found is None:
            return None
        scores.append(found)

    def mean_score(side: int) -> ScoreOfWeights:
        return lambda weights: np.asarray(np.mean([both[side](weights) for both in scores], axis=0), dtype=float)

    return compare_over_examples(len(pairs[0]), mean_score(0), mean_score(1))
