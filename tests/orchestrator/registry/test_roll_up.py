"""Numbers of groups, kept as runs end. Alone: pytest tests/orchestrator/registry/test_roll_up.py"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, func, insert, select, update

from orchestrator.base.errors import RegistryError
from orchestrator.base.results import MetricEvent
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry, roll_up
from orchestrator.registry.merging import merge_registry
from orchestrator.registry.tables import ALL_RUNS, OPEN_RUNS, RANKED_GROUPS
from tests.orchestrator.registry.group_samples import evaluated, new_sweep, scored, seeds, set_code
from tests.orchestrator.registry.samples import model_result, new_run

RATES = (1e-5, 2e-5, 3e-5)


def ended_sweep(registry: Registry, first: int = 0, code: str | None = None) -> str:
    """A sweep of three groups with two seeds each, which has ended."""
    sweep = new_sweep(registry)
    if code is not None:
        set_code(registry, sweep, code)
    for rate in RATES:
        seeds(registry, [0.7 + rate * 1e4, 0.8 - rate * 1e3], first=first, sweep=sweep, learning_rate=rate)
    registry.lifecycle.finish(sweep, RunState.COMPLETED)
    return sweep


def read_live(registry: Registry, **options: Any) -> list[dict[str, Any]]:
    """The leaderboard, read from the runs alone."""
    with registry._database.connection(writing=True) as connection:
        packs = connection.execute(select(RANKED_GROUPS)).mappings().all()
        opened = connection.scalars(select(OPEN_RUNS.c.run_id)).all()
        connection.execute(delete(RANKED_GROUPS))
        runs = connection.scalars(select(ALL_RUNS.c.id).where(ALL_RUNS.c.id.not_in(opened))).all()
        connection.execute(insert(OPEN_RUNS), [{"run_id": run} for run in runs]) if runs else None
    try:
        return list(registry.leaderboard(**options).records)
    finally:
        with registry._database.connection(writing=True) as connection:
            connection.execute(delete(OPEN_RUNS).where(OPEN_RUNS.c.run_id.in_(runs)))
            connection.execute(insert(RANKED_GROUPS), list(map(dict, packs))) if packs else None


def check(registry: Registry) -> None:
    """Check that the roll-up is that of the runs, and a board the same as without it."""
    assert registry.check_groups() == []
    for options in ({}, {"archived": True}, {"across_code": True}, {"limit": 2, "by": "median"}):
        assert list(registry.leaderboard(**options).records) == read_live(registry, **options)  # type: ignore[arg-type]


def late_trial(registry: Registry, sweep: str) -> None:
    registry.trials.record(sweep, [scored("late", 0.99, 7, number=9, parameters={"learning_rate": RATES[0]})])


def late_score(registry: Registry, sweep: str) -> None:
    trial = str(registry.trials.table(sweep).values("id")[0])
    registry.metrics.record(trial, [MetricEvent(9, "validation", {"accuracy": 0.95})], final=True)


def resume_and_drop(registry: Registry, sweep: str) -> None:
    with registry._database.connection(writing=True) as connection:
        connection.execute(update(ALL_RUNS).where(ALL_RUNS.c.id == sweep).values(state=RunState.FAILED))
    registry.lifecycle.start_attempt(sweep)
    registry.trials.drop(sweep)


def add_and_drop(registry: Registry, sweep: str) -> None:
    late_trial(registry, sweep)
    resume_and_drop(registry, sweep)


def put_and_restore(registry: Registry, sweep: str) -> None:
    registry.trash.put(sweep, 0)
    assert registry.check_groups() == []
    registry.trash.restore(sweep)


CHANGES: list[Callable[[Registry, str], object]] = [
    late_trial,
    late_score,
    resume_and_drop,
    add_and_drop,
    put_and_restore,
    lambda registry, sweep: registry.trash.put(sweep, 0),
    lambda registry, sweep: registry.lifecycle.remove(sweep),
    lambda registry, sweep: registry.annotations.set_flag(sweep, "archived"),
    lambda registry, sweep: registry.trials.set_metric(sweep, "mrpc", "accuracy"),
    lambda registry, sweep: registry.lifecycle.replace_spec(sweep, {"kind": "sweep"}, "f"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_numbers_of_groups_follow_whatever_becomes_of_a_run(
    registry: Registry, change: Callable[[Registry, str], object]
) -> None:
    first, second = ended_sweep(registry), ended_sweep(registry, first=2, code="0.1.0+g1")
    check(registry)
    change(registry, first)
    check(registry)
    ended_sweep(registry, first=4)
    registry.lifecycle.finish(first, RunState.COMPLETED) if registry.run_records([first]) else None
    check(registry)
    assert registry.run(second).state == RunState.COMPLETED


def test_a_score_that_comes_late_to_a_run_without_a_result_is_on_the_board(registry: Registry) -> None:
    ended_sweep(registry)
    run_id = new_run(registry, kind="distill", task="sst2", metric="accuracy")
    registry.lifecycle.start_attempt(run_id)
    for step, score in enumerate((0.51, 0.92, 0.73)):
        registry.metrics.record(run_id, [MetricEvent(step, "validation", {"accuracy": score})])
        registry.lifecycle.finish(run_id, RunState.COMPLETED)
        check(registry)
        assert score in registry.leaderboard().values("mean")


def test_a_run_that_completes_after_all_is_on_the_board(registry: Registry) -> None:
    """Another process had recorded its end, since its driver was silent."""
    run_id = new_run(registry, kind="distill", task="sst2", metric="accuracy")
    registry.lifecycle.start_attempt(run_id)
    registry.metrics.record(run_id, [MetricEvent(1, "validation", {"accuracy": 0.9})])
    for state in (RunState.STOPPED, RunState.COMPLETED):
        registry.lifecycle.finish(run_id, state)
        check(registry)
    assert registry.leaderboard().values("rank") == [1]


def test_nothing_is_rolled_up_anew_for_a_run_that_has_not_ended(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolled_up: list[Any] = []
    monkeypatch.setattr(roll_up, "roll_up_again", lambda connection, keys: rolled_up.append(keys))
    sweep = new_sweep(registry)
    for change in (
        registry.lifecycle.start_attempt,
        lambda sweep: registry.trials.set_data(sweep, {"train": "t"}),
        registry.trials.drop,
        registry.lifecycle.start_attempt,
    ):
        change(sweep)
    assert rolled_up == []


def test_a_run_that_is_not_there_opens_no_other(registry: Registry) -> None:
    ended_sweep(registry)
    with pytest.raises(RegistryError):
        registry.trials.drop("nowhere")
    with registry._database.connection(writing=False) as connection:
        assert connection.scalar(select(func.count()).select_from(OPEN_RUNS)) == 0


def test_runs_that_have_ended_are_read_from_the_roll_up_alone(registry: Registry) -> None:
    ended_sweep(registry)
    with registry._database.connection(writing=True) as connection:
        assert connection.scalar(select(func.count()).select_from(OPEN_RUNS)) == 0
        connection.execute(delete(RANKED_GROUPS))
    assert registry.leaderboard().records == []
    assert len(registry.check_groups(mend=True)) == len(RATES)
    assert [row["n"] for row in registry.leaderboard().records] == [2, 2, 2]
    check(registry)


def test_a_score_that_another_run_has_refused_ranks_again_when_that_run_is_gone(registry: Registry) -> None:
    sweep = new_sweep(registry)
    registry.trials.set_data(sweep, {"train": "the test file", "validation": "v"})
    seeds(registry, [0.8, 0.9], sweep=sweep)
    registry.lifecycle.finish(sweep, RunState.COMPLETED)
    registry.models.register("m", model_result(), sweep)
    evaluated(registry, "test", "the test file", 0.95)
    student = new_run(registry, kind="distill", task="sst2", metric="accuracy")
    registry.lifecycle.start_attempt(student)
    registry.lifecycle.finish(student, RunState.FAILED)
    for change, ranks in (
        (lambda: None, [1, None, None]),
        (lambda: registry.trash.put(sweep, 0), [1, None]),
        (lambda: registry.trash.restore(sweep), [1, None, None]),
    ):
        change()
        assert sorted([row["rank"] for row in registry.leaderboard().records], key=str) == ranks
        check(registry)


def test_a_score_of_a_model_whose_run_has_still_to_complete_is_refused_once_it_has(registry: Registry) -> None:
    sweep = new_sweep(registry)
    registry.trials.set_data(sweep, {"train": "the test file", "validation": "v"})
    seeds(registry, [0.8], sweep=sweep)
    evaluated(registry, "test", "the test file", 0.95)
    registry.models.register("m", model_result(), sweep)
    registry.lifecycle.finish(sweep, RunState.COMPLETED)
    assert sorted([row["rank"] for row in registry.leaderboard().records], key=str) == [1, None]
    check(registry)


def any_sweep(registry: Registry, draw: random.Random) -> None:
    """A sweep that has left a model, which may have been evaluated before."""
    sweep = new_sweep(registry)
    registry.trials.set_data(sweep, {"train": draw.choice("ab"), "validation": draw.choice("ab")})
    seeds(registry, [draw.random()], first=draw.randrange(3), sweep=sweep, learning_rate=draw.choice(RATES))
    registry.models.register("m", model_result(64 * draw.choice("de")), sweep)
    registry.lifecycle.finish(sweep, draw.choice((RunState.COMPLETED, RunState.FAILED)))


def any_evaluation(registry: Registry, draw: random.Random) -> None:
    split, digest = draw.choice(("validation", "test")), 16 * draw.choice("de")
    evaluated(registry, split, draw.choice("ab"), draw.random(), digest=digest)


def any_removal(registry: Registry, draw: random.Random) -> None:
    for removed in registry.trash.records()[:1]:
        registry.trash.restore(removed.run_id)
    registry.trash.put(draw.choice(registry.run_ids("parent is null")), 0)


def any_archiving(registry: Registry, draw: random.Random) -> None:
    registry.annotations.set_flag(draw.choice(registry.run_ids()), "archived")


@pytest.mark.parametrize("seed", [2, 3])
def test_numbers_follow_any_sequence_of_changes(tmp_path: Path, seed: int) -> None:
    """Faults lay where changes meet that are tested one by one."""
    draw, both = random.Random(seed), [Registry(str(tmp_path / f"{name}.sqlite")) for name in ("here", "there")]
    for registry in both:
        any_sweep(registry, draw)
    for _ in range(12):
        registry, other = draw.sample(both, 2)
        draw.choice((any_sweep, any_evaluation, any_evaluation, any_removal, any_archiving))(registry, draw)
        if draw.random() < 0.2:
            list(merge_registry(other._database, registry.place))
        check(registry)
        check(other)
    assert [each.check_groups() for each in both] == [[], []]


def test_merged_runs_are_rolled_up(registry: Registry, tmp_path: Any) -> None:
    ended_sweep(registry)
    with Registry(str(tmp_path / "there.sqlite")) as there:
        ended_sweep(there, first=2)
        seeds(there, [0.1])
        assert {one.change for one in merge_registry(registry._database, there.place, unfinished=True)} == {"new"}
    check(registry)
    assert [row["n"] for row in registry.leaderboard().records] == [4, 4, 4, 1]
