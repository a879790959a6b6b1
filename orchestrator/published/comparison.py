"""Comparison of a result with published numbers: the nearest one, the difference, and why the two may not compare."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from orchestrator.progress import counted
from orchestrator.published.numbers import Chosen, PublishedNumber
from orchestrator.significance.summary import mean_interval, why_noise_is_unknown

_SAME_SIZE = 1.1
"""Ratio of parameters up to which two models count as equally large: heads and vocabularies differ."""
_MILLION = 1_000_000
_CHOSEN_ON_VALIDATION = (Chosen.BEST_OF_GRID, Chosen.BEST_OF_RESTARTS)


@dataclass(frozen=True)
class RunScore:
    """Scores of a run on one split: one, or those of the seeds of its best recipe."""

    run_id: str
    task: str
    split: str
    metric: str
    scores: Sequence[float]
    num_recipes: int = 1
    """Recipes of which this one was the best on the validation split."""
    num_parameters: int | None = None
    own_files: bool = False
    """Whether the task's files are a person's own, and not the official ones in a folder."""
    begins_at_random: bool = False
    """Whether the model was not pretrained."""
    refusal: str | None = None
    """Reason why the score is refused, as it flatters the model; None where it is not."""

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return fmean(self.scores)


@dataclass(frozen=True)
class Comparison:
    """A result beside a published number."""

    score: RunScore
    number: PublishedNumber
    difference: float
    """Difference of the result's mean from the number."""
    half_width: float | None
    """Half of the 95 % interval of that; None where the seeds do not show their noise."""
    reasons: tuple[str, ...]
    """Reasons why the two may not compare, the gravest first."""

    @property
    def verdict(self) -> str:
        """Word on the seed noise: `within seed noise`, `more than seed noise`, or why it is not known."""
        if self.half_width is None:
            return f"{why_noise_is_unknown(self.score.scores)}: noise not known"
        return "more than seed noise" if abs(self.difference) > self.half_width else "within seed noise"


def compare(score: RunScore, numbers: Sequence[PublishedNumber]) -> list[Comparison]:
    """Compare a score with the numbers of its task and metric, the most comparable one first.

    Numbers whose metric is not said stand after all others.
    """
    same = [number for number in numbers if number.task == score.task and number.metric in (score.metric, None)]
    ordered = sorted(same, key=lambda number: _distance(score, number))
    interval = mean_interval(score.scores)
    half_width = None if interval is None else interval.half_width
    return [Comparison(score, one, score.mean - one.value, half_width, tuple(_reasons(score, one))) for one in ordered]


def _distance(score: RunScore, number: PublishedNumber) -> tuple[bool, bool, bool, float]:
    """Distance of a number from comparable: by metric, split, way of training, and size."""
    ratio = _size_ratio(score, number)
    return number.metric is None, number.split != score.split, bool(number.note), math.inf if ratio is None else ratio


def _size_ratio(score: RunScore, number: PublishedNumber) -> float | None:
    """The larger model's parameters by the smaller one's; None where those of one are not known."""
    sizes = (score.num_parameters, number.model.num_parameters)
    if not all(sizes):
        return None
    return max(map(float, filter(None, sizes))) / min(map(float, filter(None, sizes)))


def _reasons(score: RunScore, number: PublishedNumber) -> Iterator[str]:
    if score.refusal is not None:
        yield f"your score is refused: {score.refusal}"
    if number.metric is None:
        yield f"the source does not say which of the task's scores it is; yours is {score.metric}"
    if number.split != score.split:
        yield f"it is of the {number.split} split, yours of the {score.split} split"
    if score.begins_at_random:
        yield "yours began with random weights, and the published model was pretrained"
    if number.note:
        yield f"published with a difference: {number.note}"
    ratio = _size_ratio(score, number)
    if ratio is None:
        yield "the models' sizes cannot be compared"
    elif ratio > _SAME_SIZE and score.num_parameters and number.model.num_parameters:
        theirs, own = number.model.num_parameters / _MILLION, score.num_parameters / _MILLION
        yield f"{number.model.name} has {theirs:.3g} M parameters, yours {own:.3g} M"
    if score.own_files:
        yield "your task reads files of its own, which may not be the official split"
    yield from _choices(score, number)


def _choices(score: RunScore, number: PublishedNumber) -> Iterator[str]:
    """Reasons in how each of the two was chosen."""
    if score.num_recipes > 1 and score.split == "validation":
        yield f"yours is the best of {counted(score.num_recipes, 'recipe')} on the split that it is scored on"
    if number.chosen in _CHOSEN_ON_VALIDATION:
        where = " on the split that it is scored on" if number.split == "validation" else " on the validation split"
        yield f"published is the {number.chosen.words}, chosen{where}"
    elif number.chosen is Chosen.UNSTATED:
        yield "how the published one was chosen is not said"
    elif number.chosen is Chosen.ONE_RUN:
        yield "published is one run, whose own noise is not known"
