"""A score beside published numbers: which one, what is noise, what does not compare; and the table of numbers itself.

Alone: .venv/bin/pytest tests/orchestrator/reports/test_comparison.py
"""

import math
from dataclasses import replace
from typing import Any

import pytest
from scipy import stats

from orchestrator.base.results import MetricEvent
from orchestrator.registry import Registry
from orchestrator.reports.published import RunScore, compare, load_numbers, run_scores
from orchestrator.significance.ranking import SeedNoise
from orchestrator.significance.summary import summarize
from orchestrator.tasks.catalogue import KNOWN_TASKS
from tests.orchestrator.registry.samples import new_run, trial_result

NUMBER: dict[str, Any] = {"model": "base", "millions": 110.0, "task": "mrpc", "split": "validation", "metric": "f1"}
NUMBER |= {"value": 0.88, "chosen": "mean_of_seeds", "title": "A Paper", "url": "https://example.org", "table": "1"}
SEEDS = [0.87, 0.88, 0.90]
SCORE = RunScore("r", "mrpc", "validation", "f1", SEEDS, SeedNoise.of([summarize(SEEDS)]), millions=109.5)
BEYOND_THE_CATALOGUE = {"beir", "mnli_mismatched", "msmarco", "trec_dl_2019"}
CORRELATIONS = {"matthews_correlation", "pearson", "spearman"}
SCORES = CORRELATIONS | {"accuracy", "f1", "exact_match", "mrr_at_10", "ndcg_at_10"}
CHOSEN = {"one_run", "best_of_grid", "best_of_restarts", "mean_of_seeds", "mean_of_restarts", "mean_of_pretrainings"}
CHOSEN |= {"median_of_runs", "unstated"}


def test_what_is_alike_compares_beside_the_noise_of_seeds() -> None:
    (row,) = compare(SCORE, [NUMBER])
    assert row["why"] == []
    assert row["difference"] == pytest.approx(sum(SCORE.scores) / 3 - 0.88)
    low, high = stats.t.interval(0.95, 2, loc=row["yours"], scale=stats.sem(SCORE.scores))
    assert row["half_width"] == pytest.approx((high - low) / 2)
    assert row["noise"].startswith("within")


def test_a_verdict_needs_noise_that_is_known() -> None:
    assert compare(replace(SCORE, noise=None), [NUMBER])[0]["noise"] == "seed noise not known"
    assert compare(replace(SCORE, scores=[0.80]), [NUMBER])[0]["noise"] == "more than seed noise"


def test_the_nearest_is_of_the_same_split_trained_plainly_and_of_like_size() -> None:
    plain = NUMBER | {"table": "plain"}
    tiny = NUMBER | {"table": "tiny", "millions": 4.39}
    unknown = NUMBER | {"table": "unknown", "millions": None}
    noted = NUMBER | {"table": "noted", "note": "ensemble"}
    test = NUMBER | {"table": "test", "split": "test"}
    vague = {key: value for key, value in NUMBER.items() if key != "metric"} | {"table": "vague"}
    numbers = [vague, test, noted, unknown, tiny, plain, NUMBER | {"task": "qqp"}, NUMBER | {"metric": "accuracy"}]
    order = [row["table"] for row in compare(SCORE, numbers)]
    assert order == ["plain", "tiny", "unknown", "noted", "test", "vague"]
    assert compare(replace(SCORE, millions=5.0), numbers)[0]["table"] == "tiny"


@pytest.mark.parametrize(
    ("score", "number", "word"),
    [
        ({"refusal": "chosen on the test data"}, {}, "refused"),
        ({}, {"split": "test"}, "split"),
        ({}, {"metric": None}, "f1"),
        ({}, {"note": "ensemble"}, "ensemble"),
        ({}, {"millions": 4.39}, "4.39 M"),
        ({"millions": None}, {}, "sizes"),
        ({"begins_at_random": True}, {}, "random weights"),
        ({"has_own_files": True}, {}, "files"),
        ({"num_recipes": 4}, {}, "4 recipes"),
        ({}, {"chosen": "best_of_grid"}, "best of grid"),
        ({}, {"chosen": "one_run"}, "one run"),
        ({}, {"chosen": "unstated"}, "chosen"),
    ],
)
def test_each_difference_is_a_reason(score: dict[str, Any], number: dict[str, Any], word: str) -> None:
    published = {key: value for key, value in (NUMBER | number).items() if (key, value) != ("metric", None)}
    (reason,) = compare(replace(SCORE, **score), [published])[0]["why"]
    assert word in reason


def test_a_test_score_was_not_chosen_on_its_split() -> None:
    score, number = replace(SCORE, split="test", num_recipes=4), NUMBER | {"split": "test", "chosen": "best_of_grid"}
    (reason,) = compare(score, [number])[0]["why"]
    assert "validation split" in reason


def scores_of(registry: Registry, metric: str, by_rate: dict[float, list[float]]) -> RunScore:
    """The score of a sweep of several recipes, each with these scores of its seeds."""
    run = new_run(registry, kind="sweep", spec={"kind": "sweep", "recipe": {}}, task="wiki", metric=metric)
    trials = [
        trial_result(
            f"{rate} {seed}", seed=seed, parameters={"learning_rate": rate, "seed": seed}, metrics={metric: score}
        )
        for rate, scores in by_rate.items()
        for seed, score in enumerate(scores)
    ]
    registry.trials.record(run, trials)
    beside = {f"baseline.{metric}": 0.5, "collapsed": 0.0}  # which are no scores of the run
    registry.metrics.record(run, [MetricEvent(1, "validation", {metric: 1.0, **beside})], final=True)
    (found,) = run_scores(registry.run(run), registry)
    return found


def test_the_best_recipe_of_a_score_that_falls_has_the_lowest_mean(registry: Registry) -> None:
    found = scores_of(registry, "perplexity", {1e-4: [9.0, 9.5], 2e-4: [5.0, 5.5]})
    assert (sorted(found.scores), found.num_recipes) == ([5.0, 5.5], 2)


def test_scores_that_are_no_finite_numbers_are_left_out(registry: Registry) -> None:
    found = scores_of(registry, "accuracy", {1e-4: [math.inf], 2e-4: [0.8, math.inf, 0.9], 3e-4: [math.nan]})
    assert (sorted(found.scores), found.num_recipes) == ([0.8, 0.9], 1)


def test_every_number_is_whole_and_stands_once() -> None:
    numbers = load_numbers()
    for number in numbers:
        metric = number.get("metric")
        assert number["task"] in KNOWN_TASKS.keys() | BEYOND_THE_CATALOGUE, number
        assert number["split"] in ("validation", "test"), number
        assert metric in SCORES or (metric is None and number["task"] in ("mrpc", "qqp", "stsb")), number
        assert (-1 if metric in CORRELATIONS else 0) <= number["value"] <= 1, number
        assert number["chosen"] in CHOSEN, number
        assert number["url"].startswith("https://"), number
        assert number["title"], number
        assert number["table"], number
    assert len({str(sorted(number.items(), key=str)) for number in numbers}) == len(numbers) == 320


def test_numbers_that_everybody_knows_are_as_published() -> None:
    def values(**wanted: str) -> list[float]:
        return [one["value"] for one in load_numbers() if wanted.items() <= one.items() and "note" not in one]

    devlin = {"source": "devlin2019", "split": "test"}
    assert values(task="mrpc", metric="f1", model="bert-base-uncased", **devlin) == [0.889]
    assert values(task="cola", metric="matthews_correlation", model="bert-large-uncased", **devlin) == [0.605]
    assert values(task="sst2", model="bert-tiny", source="turc2019") == [0.832]
