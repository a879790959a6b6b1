"""Standings of groups: what ranks a group, read without the rest of it, agrees with the whole group.

pytest tests/orchestrator/registry/groups/test_standings.py
"""

import math
import random
from itertools import groupby

import pytest

from orchestrator.registry import Registry
from orchestrator.registry.groups.groups import load_groups, of_task
from orchestrator.registry.groups.ranking import ORDERS, Order
from orchestrator.registry.groups.standings import Standing, load_standings, standing_of
from orchestrator.results import MetricEvent, TrialResult
from orchestrator.run_states import RunState
from tests.orchestrator.registry.groups.samples import RECIPE, evaluated, seeds, set_code
from tests.orchestrator.registry.samples import model_result, new_run, trial_result

_STATES = (*[RunState.COMPLETED] * 4, RunState.FAILED, RunState.PRUNED)


@pytest.fixture(params=range(3))
def mixed(request: pytest.FixtureRequest, registry: Registry) -> Registry:
    """A registry of trials and evaluations of all kinds, drawn at random."""
    draw = random.Random(request.param)
    for number in range(12):
        metric = draw.choice(["accuracy", "accuracy", "perplexity"])
        task = {"id": "sst2", "max_train_examples": draw.choice([10, 100])}
        spec = {"kind": "sweep", "task": task, "recipe": RECIPE | {"micro_batch_size": draw.choice([None, 8])}}
        kind = draw.choice(["sweep", "probe"])
        sweep = new_run(registry, kind=kind, name="sweep", spec=spec, task="sst2", metric=metric)
        set_code(registry, sweep, draw.choice(["first", "second"]))
        if number % 3:
            digests = {"train": draw.choice("ab"), "validation": draw.choice("av"), "test": draw.choice("ax")}
            registry.trials.set_data(sweep, digests)
        for trial in registry.trials.record(sweep, [_trial(draw, metric, key) for key in range(6)]):
            if draw.random() < 0.3:
                registry.metrics.record(trial, [MetricEvent(7, "test", {metric: draw.random()})], final=True)
        if draw.random() < 0.2:
            registry.annotations.set_flag(sweep, "archived")
    for _ in range(6):
        evaluated(registry, draw.choice(["validation", "test"]), draw.choice("avx"), draw.random())
    return registry


def _trial(draw: random.Random, metric: str, key: int) -> TrialResult:
    """A trial whose score is now and then that of another, not finite, or of no model."""
    score = draw.choice([0.5, 0.5, draw.gauss(0.8, 0.02), draw.gauss(0.8, 0.02), math.nan, math.inf])
    return trial_result(
        f"k{key}",
        number=key,
        seed=draw.randint(0, 2),
        state=draw.choice(_STATES),
        parameters={"learning_rate": draw.choice([1e-4, 2e-4, 1.0000001e-4]), "epochs": draw.choice([3, 3.0])},
        metrics={metric: score, f"baseline.{metric}": 0.5, "collapsed": float(draw.random() < 0.2)},
        model=draw.choice([None, model_result(f"{key:064}")]),
    )


@pytest.mark.parametrize("archived", [False, True])
def test_standings_are_those_of_the_whole_groups(mixed: Registry, archived: bool) -> None:
    asked = of_task("sst2", archived=archived)
    with mixed._database.session(writing=False) as session:
        found = sorted(map(_comparable, load_standings(session, asked)))
        assert found == sorted(_comparable(standing_of(group)) for group in load_groups(session, asked))
    assert len(found) > 10


def _comparable(standing: Standing) -> str:
    """All of a standing but the order of its seeds and what its best run has besides."""
    best = standing.best and (standing.best.id, standing.best.score, standing.best.model_folder)
    rest = standing._replace(scores=sorted(standing.scores), best=None)
    return repr((rest._replace(settings=dict(sorted(standing.settings.items()))), best))


@pytest.mark.parametrize("by", ORDERS)
def test_a_few_places_are_those_of_the_whole_board(mixed: Registry, by: Order) -> None:
    whole = mixed.leaderboard_table(by=by).records
    rankings = groupby(whole, key=lambda row: [row[name] for name in ("task", "metric", "split", "data")])
    places = [[*rows] for _, rows in rankings]
    assert any(row["rank"] is None for row in whole), "a group without a score has no rank"
    for limit in (1, 3):
        assert mixed.leaderboard_table(by=by, limit=limit).records == [row for rows in places for row in rows[:limit]]


def test_a_group_that_is_removed_while_a_board_is_made_is_left_out(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated(registry, "validation", "v", 0.5)
    monkeypatch.setattr("orchestrator.registry.groups.leaderboard.load_groups", lambda session, asked: [])
    assert registry.leaderboard_table(limit=1).records == []


def test_a_list_among_the_settings_belongs_to_whoever_asked(registry: Registry) -> None:
    seeds(registry, [0.8], layers=[1, 2])
    registry.groups()[0].parameters["recipe.layers"].append(3)
    assert registry.groups()[0].parameters["recipe.layers"] == [1, 2]
