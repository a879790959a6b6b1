"""Comparison of two groups over the examples that their runs answered, from the predictions that they kept."""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.errors import InputError
from orchestrator.registry.groups.group_records import GroupRecord
from orchestrator.registry.groups.kept_predictions import (
    is_share_of_right_answers,
    right_answers,
    same_examples,
    scores_for,
)
from orchestrator.registry.groups.prediction_files import PredictionRow, read_predictions
from orchestrator.significance.comparison import McNemarResult, compare_answers, holm
from orchestrator.significance.resampling import ExampleBootstrapResult, ScoreOfWeights, compare_over_examples
from orchestrator.significance.summary import Interval

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnswerComparison:
    """McNemar's test of two runs' answers."""

    first_run: str
    second_run: str
    result: McNemarResult
    corrected_p_value: float
    """Exact p-value, corrected by Holm's method for the pairs of runs."""


@dataclass(frozen=True)
class ExampleComparison:
    """Two groups over the same examples, the first one's score minus the second one's.

    Runs are paired by their seed; where the groups have none in common, one run of each is taken, the best one.
    """

    num_examples: int
    answers: Sequence[AnswerComparison]
    """Comparison of right and wrong answers, for each pair of runs; empty where answers are not right or wrong."""
    score: ExampleBootstrapResult | None
    """Difference of the score, the mean over the pairs of runs; None for a score that the kept rows do not give."""
    is_of_answers: bool
    """Whether the score that ranks is the share of right answers."""

    @property
    def answers_about(self) -> str:
        """Name of what McNemar's test counts: right answers, or for a score not of these, examples without an error."""
        return "right answers" if self.is_of_answers else "wholly right examples"

    @property
    def _speaks(self) -> AnswerComparison | None:
        """McNemar's test of the only pair, where it is about the score."""
        alone = len(self.answers) == 1 and (self.is_of_answers or self.score is None)
        return self.answers[0] if alone else None

    @property
    def test(self) -> str:
        """Test that speaks, in words."""
        if self._speaks is not None:
            about = "" if self.is_of_answers else f" of {self.answers_about}"
            return f"McNemar's exact test{about} over {self.num_examples:,} examples"
        return f"paired bootstrap over {self.num_examples:,} examples"

    @property
    def difference(self) -> float:
        """Difference that the test is about."""
        if self._speaks is not None:
            return self._speaks.result.difference
        assert self.score is not None
        return self.score.difference

    @property
    def interval(self) -> Interval:
        """Interval of the difference."""
        if self._speaks is not None:
            return self._speaks.result.interval
        assert self.score is not None
        return self.score.interval

    @property
    def p_value(self) -> float:
        """p-value of the test that speaks."""
        if self._speaks is not None:
            return self._speaks.result.p_value
        assert self.score is not None
        return self.score.p_value


Rows = list[tuple[PredictionRow, PredictionRow]]


def compare_examples(
    first: GroupRecord, second: GroupRecord, predictions: Mapping[str, str]
) -> ExampleComparison | None:
    """Compare two groups by kept predictions; None where there are none of the same examples, or nothing to count.

    Args:
        predictions: file of predictions of each run that has one, by the run's id.
    """
    pairs: list[tuple[str, str, Rows]] = []
    for one, other in _pairs_of_runs(first, second, predictions):
        rows, other_rows = ([row for run_id in runs for row in _read(predictions[run_id])] for runs in (one, other))
        side_by_side = same_examples(rows, other_rows)
        if side_by_side is not None:
            pairs.append((one[0], other[0], side_by_side))
    if not pairs:
        return None
    answers, score = _compare_answers(pairs), _compare_scores(first.metric, [rows for _, _, rows in pairs])
    if score is None and len(answers) != 1:
        return None
    return ExampleComparison(len(pairs[0][2]), answers, score, is_share_of_right_answers(first.metric))


def _read(path: str) -> list[PredictionRow]:
    """Rows of a file of predictions; none where it is not there any more, or is none."""
    try:
        return read_predictions(path)
    except InputError as error:
        logger.warning(str(error))
        return []


def _pairs_of_runs(
    first: GroupRecord, second: GroupRecord, predictions: Mapping[str, str]
) -> list[tuple[list[str], list[str]]]:
    """Runs that kept predictions, paired by seed; the runs of a seed's folds stand together, as one."""
    sides: list[dict[int, dict[int, str]]] = []
    for group in (first, second):
        by_seed: dict[int, dict[int, str]] = defaultdict(dict)
        for run in group.runs:
            if run.is_scored and run.id in predictions and run.seed is not None:
                by_seed[run.seed][run.fold or 0] = run.id
        sides.append(by_seed)
    common = sorted(sides[0].keys() & sides[1].keys())
    if common:
        one, other = ([[own[seed][fold] for fold in sorted(own[seed])] for seed in common] for own in sides)
        return list(zip(one, other, strict=True))
    best = [[group.best.id] for group in (first, second) if group.best is not None and group.best.id in predictions]
    return [(best[0], best[1])] if len(best) == 2 else []


def _compare_answers(pairs: Sequence[tuple[str, str, Rows]]) -> list[AnswerComparison]:
    results = []
    for one, other, rows in pairs:
        first, second = right_answers([row for row, _ in rows]), right_answers([row for _, row in rows])
        if first is None or second is None:
            return []
        results.append((one, other, compare_answers(first, second)))
    corrected = holm([result.p_value for _, _, result in results])
    return [AnswerComparison(*found, p_value) for found, p_value in zip(results, corrected, strict=True)]


def _compare_scores(metric: str, pairs: Sequence[Rows]) -> ExampleBootstrapResult | None:
    """Compare the mean score over the pairs of runs: the examples that are drawn are the same for every run."""
    order = {row["id"]: place for place, (row, _) in enumerate(pairs[0])}
    scores: list[tuple[ScoreOfWeights, ScoreOfWeights]] = []
    for rows in pairs:
        if len(rows) != len(order):
            return None
        aligned = sorted(rows, key=lambda both: order.get(both[0]["id"], -1))
        found = scores_for(metric, [row for row, _ in aligned], [row for _, row in aligned])
        if found is None:
            return None
        scores.append(found)

    def mean_score(side: int) -> ScoreOfWeights:
        return lambda weights: np.asarray(np.mean([both[side](weights) for both in scores], axis=0), dtype=float)

    return compare_over_examples(len(order), mean_score(0), mean_score(1))
