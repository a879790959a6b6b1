"""Queue of the runs on one cluster: who begins, who waits for whom, and what becomes of who falls silent.

Alone: .venv/bin/pytest tests/orchestrator/cluster/test_run_queue.py
"""

import logging
import time
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster.queue_places import (
    BEAT_S,
    SILENT_S,
    Keeper,
    Place,
    Ticket,
    place_of,
    waiting_line,
)
from orchestrator.cluster.run_queue import RunQueue, connected_queue
from orchestrator.errors import RunStoppedError
from tests.waiting import wait_until

HAVE = {"CPU": 8.0, "GPU": 2.0}
TWO_GPUS = {"CPU": 2.0, "GPU": 2.0}


class Clock:
    """Clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keeper(clock: Clock) -> Keeper:
    return Keeper(clock=clock)


def ticket(
    run_id: str, needs: Mapping[str, float] = TWO_GPUS, asked_at: float = 0.0, priority: int = 0, attempt: int = 1
) -> Ticket:
    return Ticket(run_id, attempt, needs, asked_at, priority)


def test_a_second_run_that_wants_the_same_gpus_waits_and_says_for_whom(keeper: Keeper) -> None:
    assert keeper.ask(ticket("r1"), HAVE).may_begin
    place = keeper.ask(ticket("r2", asked_at=1.0), HAVE)
    assert not place.may_begin
    assert waiting_line(place) == "waiting for run r1 (2 GPUs), before it in the queue; position 1"


def test_runs_that_fit_beside_one_another_run_together(keeper: Keeper) -> None:
    assert keeper.ask(ticket("r1", {"CPU": 1, "GPU": 1}), HAVE).may_begin
    assert keeper.ask(ticket("r2", {"CPU": 1, "GPU": 1}), HAVE).may_begin
    assert not keeper.ask(ticket("r3", {"CPU": 1, "GPU": 1}), HAVE).may_begin


def test_a_run_that_grows_begins_with_the_least_and_what_it_may_take_is_not_there_for_others(keeper: Keeper) -> None:
    assert keeper.ask(ticket("r1", {"CPU": 6.0}), HAVE).may_begin
    grows = Ticket("r2", 1, {"CPU": 2.0}, 1.0, grows_to={"CPU": 8.0})
    assert keeper.ask(grows, HAVE).may_begin
    keeper.leave("r1", 1)
    late = keeper.ask(ticket("r3", {"CPU": 1.0}, 2.0), HAVE)
    assert waiting_line(late) == "waiting for run r2 (8 CPUs), before it in the queue; position 1"


def test_the_oldest_begins_first_and_a_higher_priority_before_it(keeper: Keeper) -> None:
    keeper.ask(ticket("r1"), HAVE)
    waiting = [ticket("young", asked_at=3.0), ticket("old", asked_at=2.0), ticket("urgent", asked_at=4.0, priority=1)]
    begun = []
    for _ in range(3):
        for one in waiting:
            assert not keeper.ask(one, HAVE).may_begin
        keeper.leave(begun[-1] if begun else "r1", 1)
        (first,) = [one for one in waiting if keeper.ask(one, HAVE).may_begin]
        begun.append(first.run_id)
        waiting.remove(first)
    assert begun == ["urgent", "old", "young"]


def test_a_driver_that_missed_the_answer_may_ask_again(keeper: Keeper) -> None:
    keeper.ask(ticket("r1"), HAVE)
    assert not keeper.ask(ticket("r2", asked_at=1.0), HAVE).may_begin
    assert keeper.ask(ticket("r1"), HAVE).may_begin


def test_a_run_at_work_is_not_put_off_by_a_higher_priority(keeper: Keeper) -> None:
    keeper.ask(ticket("r1"), HAVE)
    keeper.ask(ticket("urgent", priority=9), HAVE)
    assert keeper.ask(ticket("r1"), HAVE).may_begin


def test_a_small_run_passes_only_what_does_not_wait_for_the_same(keeper: Keeper) -> None:
    keeper.ask(ticket("r1"), HAVE)
    keeper.ask(ticket("r2", {"CPU": 4.0, "GPU": 1.0}, 1.0), HAVE)
    assert keeper.ask(ticket("cpus", {"CPU": 2.0}, 2.0), HAVE).may_begin
    late = keeper.ask(ticket("late", {"CPU": 1.0}, 3.0), HAVE)
    assert [one.run_id for one in late.ahead] == ["r1", "cpus", "r2"]


def test_a_run_that_nobody_is_before_begins_on_a_cluster_that_is_still_too_small(keeper: Keeper) -> None:
    """An autoscaler starts nodes for who asks."""
    assert keeper.ask(ticket("cpus", {"CPU": 1.0}), {"CPU": 1.0}).may_begin
    assert keeper.ask(ticket("gpus", {"GPU": 4.0}, 1.0), {"CPU": 1.0}).may_begin


def test_a_position_counts_the_runs_that_wait(keeper: Keeper) -> None:
    keeper.ask(ticket("r1"), HAVE)
    keeper.ask(ticket("cpus", {"CPU": 1.0}, 1.0), HAVE)
    places = [keeper.ask(ticket(run_id, asked_at=2.0), HAVE) for run_id in ("r2", "r3")]
    assert [place.position for place in places] == [1, 2]


def test_a_later_attempt_has_its_own_needs_and_a_waiting_place_of_its_own(keeper: Keeper) -> None:
    assert keeper.ask(ticket("r1"), HAVE).may_begin
    assert keeper.ask(ticket("r1", {"CPU": 1.0}, 1.0, attempt=2), HAVE).may_begin
    assert keeper.ask(ticket("r2", asked_at=2.0), HAVE).may_begin


def test_an_earlier_attempt_never_begins_and_leaves_the_later_ones_place(keeper: Keeper) -> None:
    assert keeper.ask(ticket("r1", attempt=2), HAVE).may_begin
    assert keeper.ask(ticket("r1"), HAVE) == Place(may_begin=False, is_superseded=True)
    keeper.leave("r1", 1)
    assert not keeper.ask(ticket("r2", asked_at=1.0), HAVE).may_begin


@pytest.mark.parametrize("state", ["at work", "waiting"])
def test_a_driver_that_has_died_blocks_nobody(keeper: Keeper, clock: Clock, state: str) -> None:
    keeper.ask(ticket("r1"), HAVE)
    if state == "waiting":
        keeper.ask(ticket("dead", asked_at=1.0), HAVE)
    clock.now += SILENT_S - 1
    if state == "waiting":
        keeper.ask(ticket("r1"), HAVE)
        keeper.leave("r1", 1)
    assert not keeper.ask(ticket("r2", asked_at=2.0), HAVE).may_begin
    clock.now += 2
    assert keeper.ask(ticket("r2", asked_at=2.0), HAVE).may_begin


def test_a_keeper_that_was_started_again_lets_nobody_begin_before_it_has_heard_of_who_works(clock: Clock) -> None:
    keeper = Keeper(knows_nothing=True, clock=clock)
    assert not keeper.ask(ticket("r2", asked_at=1.0), HAVE).may_begin
    assert keeper.ask(Ticket("r1", 1, TWO_GPUS, 0.0, is_at_work=True), {}).may_begin
    clock.now += 3 * BEAT_S
    assert not keeper.ask(ticket("r2", asked_at=1.0), HAVE).may_begin


needs = st.fixed_dictionaries({"CPU": st.integers(0, 9), "GPU": st.integers(0, 3)})
tickets = st.lists(st.tuples(needs, st.integers(0, 3), st.integers(-1, 1)), min_size=1, max_size=8)


@given(tickets)
def test_somebody_always_works_and_what_they_take_is_there(
    asked: list[tuple[dict[str, int], int, int]],
) -> None:
    """Nobody halves another: runs at work fit together, but for one that is larger than the cluster alone."""
    queue = [Ticket(str(number), 1, need, at, priority) for number, (need, at, priority) in enumerate(asked)]
    keeper, working = Keeper(clock=Clock()), list[Ticket]()
    for one in queue * 2:
        if keeper.ask(one, HAVE).may_begin and one not in working:
            working.append(one)
    assert working
    for name, amount in HAVE.items():
        takers = [one for one in working if one.needs[name]]
        assert sum(one.needs[name] for one in takers) <= amount or len(takers) == 1


@given(tickets)
def test_the_queue_comes_to_its_end(asked: list[tuple[dict[str, int], int, int]]) -> None:
    waiting = [Ticket(str(number), 1, need, at, priority) for number, (need, at, priority) in enumerate(asked)]
    while waiting:
        begun = [one for one in waiting if place_of(one.run_id, waiting, HAVE).may_begin]
        assert begun, "nobody may begin"
        waiting.remove(begun[0])


class Steps:
    """Keeper's answers, one after the other; what a driver was told and what it has said."""

    def __init__(self, *answers: Place) -> None:
        self.answers: Iterator[Place] = iter(answers)
        self.said: list[object] = []

    def queue(self) -> RunQueue:
        return RunQueue(0, self.ask, lambda run_id, attempt: self.said.append(run_id), lambda: HAVE)

    def ask(self, ticket: Ticket, have: Mapping[str, float]) -> Place:
        return next(self.answers, Place(True))


BEHIND = Place(False, (ticket("r1"),))
SILENT = Place(False, is_known=False)


def test_a_driver_waits_and_tells_once(caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps(BEHIND, BEHIND, Place(True))
    with caplog.at_level(logging.INFO), steps.queue().place("r2", 1, TWO_GPUS, steps.said.append, pause_s=0.0):
        assert steps.said == [True, False]
    assert caplog.messages == [waiting_line(BEHIND), "the run begins"]
    assert steps.said == [True, False, "r2"]


def test_a_run_whose_turn_it_is_was_never_queued(caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps()
    with caplog.at_level(logging.INFO), steps.queue().place("r1", 1, TWO_GPUS, steps.said.append):
        pass
    assert (steps.said, caplog.messages) == (["r1"], [])


def test_a_stage_has_the_place_of_its_pipeline() -> None:
    steps = Steps()
    queue = steps.queue()
    with queue.place("pipeline", 1, TWO_GPUS, steps.said.append):
        steps.answers = iter([BEHIND] * 1000)
        with queue.place("stage", 1, TWO_GPUS, steps.said.append):
            pass
        assert steps.said == []


def test_who_is_stopped_while_waiting_leaves_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(pause_s: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    steps = Steps(BEHIND)
    with pytest.raises(KeyboardInterrupt), steps.queue().place("r2", 1, TWO_GPUS, steps.said.append):
        pass
    assert steps.said == [True, "r2"]


def test_a_driver_that_was_superseded_while_it_waited_ends() -> None:
    steps = Steps(BEHIND, Place(may_begin=False, is_superseded=True))
    place = steps.queue().place("r2", 1, TWO_GPUS, steps.said.append, pause_s=0.0)
    with pytest.raises(RunStoppedError, match="run r2 was superseded by another attempt"), place:
        pytest.fail("it began")


def test_a_queue_that_does_not_answer_keeps_nobody_from_work(caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps(*[SILENT] * 100)
    with steps.queue().place("r1", 1, TWO_GPUS, steps.said.append, pause_s=0.0):
        pass
    assert "the run begins without it" in caplog.text


def test_a_head_that_is_away_ends_nobodys_waiting() -> None:
    answers = iter([ConnectionError("the head is away"), ValueError("no such actor"), Place(True)])

    def ask(*word: object) -> Place:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    said: list[object] = []
    with RunQueue(0, ask, print, dict).place("r1", 1, TWO_GPUS, said.append, pause_s=0.0):
        assert said == [True, False]


@pytest.mark.ray
def test_a_keeper_that_is_killed_comes_back_and_knows_who_works(ray_cluster: None) -> None:
    import ray

    queue, all_cpus = connected_queue(), {"CPU": 6.0}

    def second() -> Place:
        return queue._turn_of(ticket("r2", all_cpus, asked_at=time.time()))

    with connected_queue().place("r1", 1, all_cpus, print, pause_s=0.2):
        assert [one.run_id for one in second().ahead] == ["r1"]
        ray.kill(ray.get_actor("run-queue-2", namespace="orchestrator"), no_restart=False)
        wait_until(lambda: second().ahead != (), "the keeper does not come back")
        assert not second().may_begin
    wait_until(lambda: second().may_begin, "the place of a run that has ended is kept")
    ray.kill(ray.get_actor("run-queue-2", namespace="orchestrator"))
