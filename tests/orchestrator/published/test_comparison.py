"""Comparison of a score with published numbers: which one stands beside it, what is noise, what does not compare.

Alone: .venv/bin/pytest tests/orchestrator/published/test_comparison.py
"""

from dataclasses import replace

import pytest
from scipy import stats

from orchestrator.published.comparison import RunScore, compare
from orchestrator.published.numbers import Chosen, PublishedModel, PublishedNumber, Source

SOURCE = Source("paper", "A Paper", "https://example.org", "source")
NUMBER = PublishedNumber(
    PublishedModel("base", 110_000_000),
    "mrpc",
    "validation",
    "f1",
    0.88,
    None,
    5,
    Chosen.MEAN_OF_SEEDS,
    SOURCE,
    "1",
    "",
)
SCORE = RunScore("r", "mrpc", "validation", "f1", [0.87, 0.88, 0.90], num_parameters=109_500_000)


def only(score: RunScore, number: PublishedNumber) -> tuple[str, ...]:
    (comparison,) = compare(score, [number])
    return comparison.reasons


def test_what_is_alike_compares_and_the_noise_is_students() -> None:
    (comparison,) = compare(SCORE, [NUMBER])
    assert comparison.reasons == ()
    assert comparison.difference == pytest.approx(sum(SCORE.scores) / 3 - 0.88)
    low, high = stats.t.interval(0.95, 2, loc=SCORE.mean, scale=stats.sem(SCORE.scores))
    assert comparison.half_width == pytest.approx((high - low) / 2)
    assert comparison.verdict == "within seed noise"


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ([0.88], "one seed: noise not known"),
        ([0.9, 0.9], "two seeds that score the same: noise not known"),
        ([0.80, 0.801, 0.802], "more than seed noise"),
        ([0.85, 0.9], "within seed noise"),
    ],
)
def test_a_verdict_needs_several_seeds(scores: list[float], verdict: str) -> None:
    assert compare(replace(SCORE, scores=scores), [NUMBER])[0].verdict == verdict


def test_the_nearest_is_of_the_same_split_trained_plainly_and_of_like_size() -> None:
    tiny = replace(NUMBER, model=PublishedModel("tiny", 4_390_000))
    unknown = replace(NUMBER, model=PublishedModel("mystery"))
    noted = replace(NUMBER, note="ensemble")
    test = replace(NUMBER, split="test")
    vague = replace(NUMBER, metric=None)
    numbers = [vague, test, noted, unknown, tiny, NUMBER]
    assert [each.number for each in compare(SCORE, numbers)] == [NUMBER, tiny, unknown, noted, test, vague]
    small = replace(SCORE, num_parameters=5_000_000)
    assert compare(small, numbers)[0].number == tiny


def test_other_tasks_and_scores_do_not_count() -> None:
    assert compare(SCORE, [replace(NUMBER, task="qqp"), replace(NUMBER, metric="accuracy")]) == []


@pytest.mark.parametrize(
    ("score", "number", "reason"),
    [
        ({}, {"split": "test"}, "it is of the test split, yours of the validation split"),
        ({}, {"metric": None}, "the source does not say which of the task's scores it is; yours is f1"),
        ({}, {"note": "ensemble"}, "published with a difference: ensemble"),
        ({}, {"model": PublishedModel("tiny", 4_390_000)}, "tiny has 4.39 M parameters, yours 110 M"),
        ({"num_parameters": None}, {}, "the models' sizes cannot be compared"),
        ({"begins_at_random": True}, {}, "yours began with random weights, and the published model was pretrained"),
        ({"own_files": True}, {}, "your task reads files of its own, which may not be the official split"),
        ({"num_recipes": 4}, {}, "yours is the best of 4 recipes on the split that it is scored on"),
        (
            {},
            {"chosen": Chosen.BEST_OF_GRID},
            "published is the best of grid, chosen on the split that it is scored on",
        ),
        ({}, {"chosen": Chosen.ONE_RUN}, "published is one run, whose own noise is not known"),
        ({}, {"chosen": Chosen.UNSTATED}, "how the published one was chosen is not said"),
    ],
)
def test_each_difference_is_a_reason(score: dict[str, object], number: dict[str, object], reason: str) -> None:
    reasons = only(replace(SCORE, **score), replace(NUMBER, **number))  # type: ignore[arg-type]
    assert reasons == (reason,)


def test_a_test_score_was_not_chosen_on_its_split() -> None:
    reasons = only(
        replace(SCORE, split="test", num_recipes=4), replace(NUMBER, split="test", chosen=Chosen.BEST_OF_GRID)
    )
    assert reasons == ("published is the best of grid, chosen on the validation split",)
