"""Scores of a recorded sweep, as they are compared with published ones: whose they are, and that they are numbers.

Alone: pytest tests/orchestrator/published/test_run_scores.py
"""

import math

from orchestrator.published.comparison import RunScore
from orchestrator.published.run_scores import run_scores
from orchestrator.registry import Registry
from orchestrator.results import MetricEvent
from tests.orchestrator.registry.samples import new_run, trial_result


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
    registry.metrics.record(run, [MetricEvent(1, "validation", {metric: 1.0})], final=True)
    (found,) = run_scores(registry.run(run), registry)
    return found


def test_the_best_recipe_of_a_score_that_falls_has_the_lowest_mean(registry: Registry) -> None:
    found = scores_of(registry, "perplexity", {1e-4: [9.0, 9.5], 2e-4: [5.0, 5.5]})
    assert (sorted(found.scores), found.num_recipes) == ([5.0, 5.5], 2)


def test_scores_that_are_no_finite_numbers_are_left_out(registry: Registry) -> None:
    found = scores_of(registry, "accuracy", {1e-4: [math.inf], 2e-4: [0.8, math.inf, 0.9], 3e-4: [math.nan]})
    assert (sorted(found.scores), found.num_recipes) == ([0.8, 0.9], 1)
