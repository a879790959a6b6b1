"""Comparison of groups: whether their difference is more than luck, over seeds and over the examples they answered.

Which test over seeds speaks follows from the numbers of seeds and of comparisons and from whether seeds show noise,
never from what the tests say:

    six or more seeds in common     paired permutation: it needs six pairs to be able to find anything at 95 %, and
                                    seven to eleven where two to fifty comparisons are corrected for
    fewer, two or more on each side Welch's test over all seeds of both
    one seed on a side              none: the noise of seeds is not known, and only examples can speak
    a side's scores all equal       no Welch's test, which would take any difference for certain
    both sides' scores all equal    none at all, likewise
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import stdev
from typing import Any, NamedTuple

import numpy as np

from orchestrator.base.errors import InputError, OrchestratorError
from orchestrator.base.metric_names import is_better_lower
from orchestrator.registry.group_records import GroupRecord, GroupRun
from orchestrator.registry.parameters import varying_paths
from orchestrator.significance import comparison, predictions
from orchestrator.significance.summary import LEVEL, has_spread, why_noise_is_unknown
from orchestrator.storage import read_bytes

logger = logging.getLogger(__name__)
Result = comparison.DifferenceResult | comparison.McNemarResult


class AnswerComparison(NamedTuple):
    """McNemar's test of two runs' answers."""

    first_run: str
    second_run: str
    result: comparison.McNemarResult
    corrected_p_value: float
    """Exact p-value, corrected by Holm's method for the pairs of runs."""


class ExampleComparison(NamedTuple):
    """Two groups over the same examples, the first one's score minus the second one's.

    Runs are paired by their seed; where the groups have no seed in common, their best ones are.
    """

    num_examples: int
    answers: Sequence[AnswerComparison]
    """Comparison of right and wrong answers, for each pair of runs; empty where answers are not right or wrong."""
    answers_about: str
    """Name of what McNemar's test counts."""
    score: comparison.DifferenceResult | None
    """Difference of the score, the mean over the pairs of runs; None for a score that the kept rows do not give."""
    result: Result
    """Result of the test that speaks: McNemar's of the only pair, where it is about the score, or the bootstrap."""
    test: str
    """Test that speaks, in words."""


@dataclass(frozen=True)
class Comparison:
    """Comparison of two groups by their scores, the first one's minus the second one's."""

    first: GroupRecord
    second: GroupRecord
    num_comparisons: int
    """Number of comparisons, made at once, that can tell anything: p-values are corrected for so many."""
    differences: Sequence[float]
    """Differences of the scores of common seeds, in the order of the seeds."""
    paired: comparison.DifferenceResult | None
    """Permutation test over the common seeds; None where there are fewer than two."""
    welch: comparison.DifferenceResult
    """Welch's test over all seeds."""
    of_seeds: comparison.DifferenceResult
    """One of these, by the rule above; it has no p-value where the noise of seeds is not known."""
    examples: ExampleComparison | None
    """Comparison over the examples that runs of both answered; None where no predictions of the same ones are kept,
    or these do not give the score."""
    result: Result
    """Result of the test that speaks: over seeds, or where these show no noise, over examples."""
    test: str
    """Test that speaks, in words; empty where the noise of seeds is not known, and nothing else tells."""
    num_seeds_needed: int | None
    """Number of seeds of each group that would settle a difference of this size; None where no number would."""
    corrected_p_value: float | None = None
    """p-value, corrected by Holm's method for all the comparisons that were asked for at once."""

    @property
    def p_value(self) -> float | None:
        return self.result.p_value

    @property
    def is_distinguishable(self) -> bool | None:
        """Whether the groups differ by more than luck; None where nothing can tell."""
        return None if self.corrected_p_value is None else self.corrected_p_value < 1 - LEVEL

    @property
    def differs_in(self) -> Mapping[str, tuple[Any, Any]]:
        """Values in which the groups differ, by path."""
        one, other = ({**group.parameters, "code": group.code_version} for group in (self.first, self.second))
        return {path: (one.get(path), other.get(path)) for path in sorted(varying_paths([one, other]))}

    @property
    def words(self) -> str:
        """The answer in one sentence: whether the groups differ, by what, and how many seeds would settle it."""
        metric, result, corrected = self.first.metric, self.result, self.corrected_p_value
        why = "" if self.of_seeds.p_value is not None else why_noise_is_unknown(self.first.scores, self.second.scores)
        facts = f"difference {_amount(metric, result.difference)}"
        if result.p_value is None or corrected is None:
            missing = f"no predictions of the same examples are kept that tell of {metric}; run further seeds"
            return f"nothing can tell: {facts} cannot be held against the noise of seeds ({why}), and {missing}"
        if result.interval is not None:
            low, high = result.interval
            facts += f", 95 % interval {_amount(metric, low, unit='')} to {_amount(metric, high)}"
        facts += f", p = {_p_text(result.p_value)} ({self.test})"
        if self.num_comparisons > 1:
            facts += f"; corrected for {self.num_comparisons} comparisons (Holm): p = {_p_text(corrected)}"
        if why:
            models = "these two models are" if self.is_distinguishable else "not even these two models are"
            return f"{models} distinguishable: {facts}; {why}: whether further seeds would say so is not known"
        if self.is_distinguishable:
            is_first = (result.difference > 0) != is_better_lower(metric)
            return f"distinguishable: {'the first' if is_first else 'the second'} is better, {facts}"
        further = "no number of seeds settles so small a difference"
        if (needed := self.num_seeds_needed) is not None:
            further = f"about {needed} seeds each would settle a difference of this size"
            if needed <= min(len(self.first.seeds), len(self.second.seeds)):
                further = f"{needed} seeds each find a difference of this size {comparison.POWER:.0%} of the time"
        among = f" among {self.num_comparisons} comparisons" if self.num_comparisons > 1 else ""
        return f"not distinguishable{among}: {facts}; {further}"


def _compare(
    first: GroupRecord, second: GroupRecord, examples: ExampleComparison | None, num_comparisons: int = 1
) -> Comparison:
    """Compare two groups by the test that speaks."""
    one, other = ({seed.seed: seed.score for seed in group.seeds} for group in (first, second))
    common = [(one[seed], other[seed]) for seed in one if seed in other and seed is not None]
    differences = [score - other_score for score, other_score in common]
    paired = comparison.compare_pairs(differences) if len(common) > 1 else None
    welch = of_seeds = comparison.compare_means(first.scores, second.scores)
    level = 1 - (1 - LEVEL) / num_comparisons  # of the first of Holm's steps
    result: Result = welch
    test, num_needed = "", None
    shows_noise = any(map(has_spread, zip(*common, strict=True)))
    if paired is not None and shows_noise and comparison.least_p_value(len(common)) < 1 - level:
        result = of_seeds = paired
        test = f"paired permutation over {len(common)} common seeds"
        num_needed = comparison.pairs_of_seeds(paired.difference, stdev(differences), level)
    elif welch.p_value is not None:
        test = f"Welch's test over {len(first.seeds)} and {len(second.seeds)} seeds"
        num_needed = comparison.seeds_of_each_group(welch.difference, stdev(first.scores), stdev(second.scores), level)
    elif examples is not None:
        result, test = examples.result, examples.test
    return Comparison(
        first, second, num_comparisons, differences, paired, welch, of_seeds, examples, result, test, num_needed
    )


def compare_groups(names: Sequence[str], groups: Sequence[GroupRecord]) -> list[Comparison]:
    """Compare each two of the groups that names stand for, as `Registry.compare` describes it."""
    if len(groups) < 2:
        raise InputError("name at least two groups, runs or trials to compare")
    for (one, first), (other, second) in combinations(zip(names, groups, strict=True), 2):
        if [run.id for run in first.runs] == [run.id for run in second.runs]:
            raise InputError(f"{one} and {other} are the same runs; name different ones")
    first = groups[0]
    for group in groups:
        for field in ("task", "metric", "split", "data"):
            one, other = getattr(first, field), getattr(group, field)
            if one != other:
                what = f"groups {first.label} and {group.label} cannot be compared: their {field} is {one} and {other}"
                raise InputError(f"{what}; score both models on the same data by runs of a spec with `kind: evaluate`")
        if not group.seeds:
            why = group.refusal or "no run of it completed with a score"
            raise InputError(f"group {group.label} cannot be compared: {why}")
    alone = [_compare(first, second, compare_examples(first, second)) for first, second in combinations(groups, 2)]
    num_telling = max(1, sum(one.p_value is not None for one in alone))
    found = [_compare(one.first, one.second, one.examples, num_telling) for one in alone]
    corrected = iter(comparison.holm([one.p_value for one in found if one.p_value is not None]))
    return [one if one.p_value is None else replace(one, corrected_p_value=next(corrected)) for one in found]


def compare_examples(first: GroupRecord, second: GroupRecord) -> ExampleComparison | None:
    """Compare two groups by kept predictions; None where there are none of the same examples, or nothing to count."""
    pairs: dict[tuple[str, str], dict[Any, predictions.Pair]] = {}
    for one, other in _pairs_of_runs(first, second):
        if side_by_side := predictions.same_examples(_rows_of(one), _rows_of(other)):
            pairs[one[0].id, other[0].id] = side_by_side
    if not pairs:
        return None
    answers, score = _compare_answers(pairs), _compare_scores(first.metric, list(pairs.values()))
    num_examples, is_of_score = len(next(iter(pairs.values()))), first.metric in predictions.OF_RIGHT_ANSWERS
    about = "right answers" if is_of_score else "wholly right examples"
    if len(answers) == 1 and (is_of_score or score is None):
        result: Result | None = answers[0].result
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


def _rows_of(runs: Sequence[GroupRun]) -> list[predictions.PredictionRow]:
    """Rows that runs kept; none of a file that is not there any more, or has no predictions."""
    rows: list[predictions.PredictionRow] = []
    for run in runs:
        try:
            rows += read_predictions(run.predictions_path or "")
        except InputError as error:
            logger.warning(str(error))
    return rows


def _compare_answers(pairs: Mapping[tuple[str, str], Mapping[Any, predictions.Pair]]) -> list[AnswerComparison]:
    """Compare the answers of each pair of runs; none where answers are not right or wrong, but near or far."""
    results = []
    for rows in pairs.values():
        keys = set[str].intersection(*({*row} for both in rows.values() for row in both))
        key = "correct" if "correct" in keys else "exact_match"
        if key not in keys:
            return []
        sides = zip(*rows.values(), strict=True)
        results.append(comparison.compare_answers(*([bool(row[key]) for row in side] for side in sides)))
    corrected = comparison.holm([result.p_value for result in results])
    told = zip(pairs, results, corrected, strict=True)
    return [AnswerComparison(*ids, result, p_value) for ids, result, p_value in told]


def _compare_scores(metric: str, pairs: Sequence[Mapping[Any, predictions.Pair]]) -> comparison.DifferenceResult | None:
    """Compare the mean score over the pairs of runs: the examples that are drawn are the same for every run."""
    scores: list[tuple[comparison.ScoreOfWeights, comparison.ScoreOfWeights]] = []
    for rows in pairs:
        if rows.keys() != pairs[0].keys():
            return None
        found = predictions.scores_for(metric, *zip(*(rows[example] for example in pairs[0]), strict=True))
        if found is None:
            return None
        scores.append(found)

    def mean_score(side: int) -> comparison.ScoreOfWeights:
        return lambda weights: np.asarray(np.mean([both[side](weights) for both in scores], axis=0), dtype=float)

    return comparison.compare_over_examples(len(pairs[0]), mean_score(0), mean_score(1))


def read_predictions(path: str) -> list[predictions.PredictionRow]:
    """Read a file of predictions, which are all of one kind.

    Raises: InputError where the file is not there, or a line of it is no prediction, which is named.
    """
    rows: list[predictions.PredictionRow] = []
    first = None
    try:
        for number, line in enumerate(read_bytes(path).decode().split("\n"), start=1):
            if not line.strip():
                continue
            rows.append(json.loads(line))
            kind = predictions.prediction_kind(rows[-1])
            if kind is None:
                raise ValueError(f"line {number} is no prediction beside what is right, in a form that a task keeps")
            first = first or kind
            if kind != first:
                raise ValueError(f"line {number} predicts a {kind}, and those before it a {first}")
    except (OSError, ValueError, OrchestratorError) as error:
        raise InputError(f"The predictions at {path} cannot be read: {error}") from error
    return rows


def _amount(metric: str, value: float, unit: str = " points") -> str:
    """Text of a difference: of scores, which are fractions, in points of a hundred."""
    if is_better_lower(metric):
        return f"{value:.4g}"
    decimals = 1 if abs(value) >= 0.001 or not value else 1 - math.floor(math.log10(100 * abs(value)))
    return f"{100 * value:.{min(decimals, 4)}f}{unit}"


def _p_text(p_value: float) -> str:
    return f"{p_value:.2g}" if p_value >= 0.001 else "under 0.001"
