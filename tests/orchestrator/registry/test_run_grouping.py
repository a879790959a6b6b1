"""Groups of runs, held against Python. Alone: pytest tests/orchestrator/registry/test_run_grouping.py"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.base.errors import InputError
from orchestrator.base.results import DatasetResult, MetricEvent
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from tests.orchestrator.registry.query_samples import SAMPLES
from tests.orchestrator.registry.samples import model_result, new_run, trial_result

KEYS = ["task", "seed", "host", "params.learning_rate", "params.recipe.size", "params.cased", "state"]
VALUES = ["metrics.f1", "metrics.train.loss", "params.learning_rate", "seconds", "at(metrics.train.loss, 5)"]
FUNCTIONS: dict[str, Callable[[Sequence[float]], Any]] = {
    "n": len,
    "mean": fmean,
    "sd": lambda values: stdev(values) if len(values) > 1 else None,
    "min": min,
    "max": max,
    "median": median,
    "sum": math.fsum,
}


def value(name: str, run: dict[str, Any]) -> Any:
    if name == "state":
        return "PENDING"
    return run["history"][0][1] if name.startswith("at(") else run[name]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    by=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True),
    function=st.sampled_from(list(FUNCTIONS)),
    field=st.sampled_from(VALUES),
)
def test_groups_hold_what_plain_python_finds(filled: Registry, by: list[str], function: str, field: str) -> None:
    groups: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for run in SAMPLES:
        groups[tuple(value(name, run) for name in by)].append(value(field, run))
    expected = {}
    for key, values in groups.items():
        there = [one for one in values if one is not None]
        expected[key] = (len(values), FUNCTIONS[function](there) if there or function == "n" else None)
    table = filled.grouped(",".join(by), aggregates=["count", f"{function}({field})"])
    assert table.columns == [*by, "count", f"{function}({field})"]
    got = {tuple(row[name] for name in by): tuple(row[name] for name in table.columns[-2:]) for row in table.records}
    assert len(got) == len(table.records)
    assert got.keys() == expected.keys()
    for key, (count, aggregate) in expected.items():
        assert got[key] == (count, aggregate if aggregate is None else pytest.approx(aggregate)), key


@pytest.fixture
def scored(registry: Registry) -> Registry:
    """Four learning rates of two seeds on one task, one of them without a score, and one run of another task."""
    for rate, seed, score in ((1e-5, 0, 0.7), (1e-5, 1, 0.8), (3e-5, 0, 0.9), (3e-5, 1, None)):
        run_id = new_run(registry, task="mrpc", metric="f1", seed=seed, spec={"learning_rate": rate}, tags=["a", "b"])
        complete(registry, run_id, **({} if score is None else {"f1": score}))
    other = new_run(registry, task="lm", metric="perplexity", seed=0, spec={"learning_rate": 1e-5})
    complete(registry, other, perplexity=12.0)
    return registry


def complete(registry: Registry, run_id: str, **metrics: float) -> None:
    """Let a run complete with measurements."""
    registry.lifecycle.start_attempt(run_id)
    registry.metrics.record(run_id, [MetricEvent(1, "validation", metrics)])
    registry.lifecycle.finish(run_id, RunState.COMPLETED)


def test_the_score_is_aggregated_unless_a_field_is_named(scored: Registry) -> None:
    table = scored.grouped("params.learning_rate", "task = 'mrpc'")
    assert table.columns == ["params.learning_rate", "count", "n", "mean", "sd", "min", "max"]
    low, high = table.records
    assert (low["count"], low["n"], low["min"], low["max"]) == (2, 2, 0.7, 0.8)
    assert (low["mean"], low["sd"]) == (pytest.approx(0.75), pytest.approx(stdev([0.7, 0.8])))
    assert (high["count"], high["n"], high["mean"], high["sd"]) == (2, 1, 0.9, None)


def test_scores_of_different_measurements_are_never_taken_together(scored: Registry) -> None:
    table = scored.grouped("params.learning_rate", aggregates="count, best, worst")
    assert [tuple(row.values()) for row in table.records] == [
        (1e-5, "f1", 2, 0.8, 0.7),
        (1e-5, "perplexity", 1, 12.0, 12.0),
        (3e-5, "f1", 2, 0.9, 0.9),
    ]


def test_a_pivot_makes_a_column_of_each_value(scored: Registry) -> None:
    table = scored.grouped("params.learning_rate", "task = 'mrpc'", pivot="seed")
    assert table.columns == ["params.learning_rate", "seed=0", "seed=1"]
    assert [tuple(row.values()) for row in table.records] == [(1e-5, 0.7, 0.8), (3e-5, 0.9, None)]
    named = scored.grouped("seed", aggregates="mean,min(task),max(metric)")
    assert [(row["min(task)"], row["max(metric)"]) for row in named.records if row["seed"] == 1] == [("mrpc", "f1")]
    several = scored.grouped("task", "task = 'mrpc'", aggregates="count,max", pivot="seed")
    assert several.columns == ["task", "count seed=0", "max seed=0", "count seed=1", "max seed=1"]


def test_a_pivot_tells_text_from_what_reads_the_same(registry: Registry) -> None:
    for value in ("none", None, "true", True):
        new_run(registry, spec={"mode": value})
    (row,) = registry.grouped("state", aggregates="count", pivot="params.mode").records
    del row["state"]
    assert row == {'mode="none"': 1, "mode=none": 1, 'mode="true"': 1, "mode=true": 1}


def test_a_run_with_several_tags_is_in_the_group_of_each(scored: Registry) -> None:
    counts = {row["tag"]: row["count"] for row in scored.grouped("tag", aggregates="count").records}
    assert counts == {"a": 4, "b": 4, None: 1}
    asked = scored.grouped("tag", "tag = 'a' and metrics.f1 > 0.75", aggregates="count").records
    assert asked == [{"tag": "a", "count": 2}, {"tag": "b", "count": 2}]


def test_values_of_different_types_are_different_groups(registry: Registry) -> None:
    for value in (1, 1.0, True, "1", None, [1, 2]):
        new_run(registry, spec={"width": value})
    groups = [(row["params.width"], row["count"]) for row in registry.grouped("params.width").records]
    assert groups == [(1, 2), ("1", 1), (True, 1), ([1, 2], 1), (None, 1)]


def test_infinite_values_have_no_deviation(registry: Registry) -> None:
    for value in (1.0, math.inf):
        complete(registry, new_run(registry, metric="f1"), f1=value)
    (row,) = registry.grouped("kind", aggregates="n,mean,sd,max").records
    assert row == {"kind": "pretrain", "n": 2, "mean": math.inf, "sd": None, "max": math.inf}


def test_a_sweeps_own_score_and_those_of_what_has_not_completed_are_in_no_mean(registry: Registry) -> None:
    sweep = new_run(registry, kind="sweep", task="mrpc", metric="f1", spec={"recipe": {"size": "tiny"}})
    states = {0.7: RunState.COMPLETED, 0.8: RunState.COMPLETED, 0.1: RunState.PRUNED}
    registry.trials.record(
        sweep, [trial_result(f"{score}", metrics={"f1": score}, state=state) for score, state in states.items()]
    )
    complete(registry, sweep, f1=0.8)
    table = registry.grouped("params.size", "task = 'mrpc'", aggregates="count,n,mean,mean(metrics.f1)")
    (row,) = table.records
    assert (row["count"], row["n"], row["mean"]) == (3, 2, pytest.approx(0.75))
    assert list(table.notes) == [
        "left out: 1 run whose trials are here, with the score of the best one",
        "left out: the score of 1 run not completed",
    ]
    (alone,) = registry.grouped("task", "kind = 'sweep'").records
    assert (alone["n"], alone["mean"]) == (1, 0.8), "without its trials it stands for itself"
    assert registry.grouped("task", aggregates="count").values("count") == [4]


def test_refused_test_scores_are_in_no_mean(registry: Registry) -> None:
    for score, test_data in ((0.9, "v"), (0.6, "t"), (0.8, "t")):
        run = new_run(registry, kind="distill", task="sst2", metric="accuracy")
        registry.trials.set_data(run, {"train": "x", "validation": "v", "test": test_data})
        registry.metrics.record(run, [MetricEvent(1, "test", {"accuracy": score})], final=True)
    table = registry.grouped("task", "", aggregates="count,n(metrics.test.accuracy),mean(metrics.test.accuracy)")
    assert [tuple(record.values()) for record in table.records] == [("sst2", 3, 2, pytest.approx(0.7))]
    assert table.notes == ["left out: the test score of 1 run, refused; `orchestrator runs show` says why"]
    quoted = registry.grouped("task", "", aggregates='count,n(metrics."test.accuracy"),mean(metrics."test.accuracy")')
    assert [tuple(record.values()) for record in quoted.records] == [tuple(record.values()) for record in table.records]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": ""}, "by one field at least"),
        ({"by": "tusk"}, "No run has a field 'tusk'; nearest: task"),
        ({"by": "task", "aggregates": "avg"}, "'avg' is no aggregate; there are count"),
        ({"by": "task", "aggregates": "mean(kind)"}, "mean takes numbers, and kind has other values"),
        ({"by": "task", "aggregates": "mean(metrics.ff)"}, "nearest: metrics.f1"),
        ({"by": "task", "aggregates": "max(tag)"}, "several values of tag"),
        ({"by": "task", "sort": "-median"}, "Cannot sort groups by 'median'; they have: task, metric, count"),
        ({"by": "task, best(kind)"}, "kind has no history"),
    ],
)
def test_what_cannot_be_grouped_is_told(scored: Registry, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        scored.grouped(**arguments)


@pytest.mark.heavy
def test_a_pivot_of_too_many_values_is_refused(scored: Registry) -> None:
    for _ in range(55):
        new_run(scored, spec={})
    with pytest.raises(InputError, match="id has 60 values; at most 50 become columns"):
        scored.grouped("task", pivot="id")


def test_scores_of_different_tasks_are_never_taken_together_and_of_different_data_not_silently(
    registry: Registry,
) -> None:
    for task, data, score in (("mrpc", "v1", 0.8), ("mrpc", "v2", 0.6), ("names", "v3", 0.2)):
        sweep = new_run(registry, kind="sweep", task=task, metric="f1", spec={"kind": "sweep", "recipe": {}})
        registry.trials.set_data(sweep, {"validation": data})
        registry.trials.record(sweep, [trial_result("k", seed=0, metrics={"f1": score})])
    table = registry.grouped("seed", "kind = 'trial'", aggregates="mean")
    assert [(row["task"], row["mean"]) for row in table.records] == [("mrpc", pytest.approx(0.7)), ("names", 0.2)]
    assert table.notes == [
        "scores on different validation data are taken together in 1 group; to part them, group by "
        "params.data.validation_digest, too"
    ]
    apart = registry.grouped("seed,params.data.validation_digest", "kind = 'trial'", aggregates="mean")
    assert (len(apart.records), apart.notes) == (3, [])


def test_a_trial_counts_once_under_the_data_of_its_sweep(tmp_path: Path) -> None:
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        sweep = new_run(registry, kind="sweep", task="own", metric="f1")
        registry.datasets.record(sweep, DatasetResult("reviews", "task", "1" * 64, "tasks/1", {}))
        registry.trials.record(sweep, [trial_result(f"k{n}", number=n, metrics={"f1": 0.5}) for n in range(4)])
        table = registry.grouped("dataset", "kind = 'trial'", aggregates="count")
    assert [(row["dataset"], row["count"]) for row in table.records] == [("reviews", 4)]


def test_a_run_counts_once_however_many_rows_have_a_value_of_it(registry: Registry) -> None:
    for seconds in (10.0, 100.0):
        run_id = new_run(registry, tags=("x", "y"), spec={})
        registry.lifecycle.start_attempt(run_id)
        registry.lifecycle.finish(run_id, RunState.COMPLETED, seconds=seconds)
    for digest in "ab":
        registry.models.register("m", model_result(digest * 64), run_id)
        registry.datasets.record(run_id, DatasetResult("wiki", "corpus", digest * 64, "c", {}))
    whole = registry.grouped("kind", "", aggregates="count,sum(seconds),n(tag),n(model)").records
    assert [tuple(record.values()) for record in whole] == [("pretrain", 2, 110.0, 2, 1)]
    for field in ("model", "dataset"):
        groups = registry.grouped(field, "", aggregates="count,sum(seconds)").records
        assert [tuple(group.values())[1:] for group in groups] == [(1, 100.0), (1, 10.0)]
