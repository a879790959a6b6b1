"""Trials that wait for one another: who goes on, who ends, and that arrival, deaths and interruptions change nothing.

Run alone: pytest tests/orchestrator/finetuning/test_bracket_trials.py
"""

import random
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.finetuning.bracket_trials import BracketTrials
from orchestrator.finetuning.search_space import TrialPlan
from orchestrator.search.schedulers.base import Bracket
from orchestrator.specs import RecipeSpec

NINE = Bracket(num_trials=9, rungs=(1, 3), reduction_factor=3)


def plan(number: int) -> TrialPlan:
    return TrialPlan(number, {}, RecipeSpec(tokenizer="own", seed=number))


def filled(bracket: Bracket, num_trials: int | None = None) -> BracketTrials:
    trials = BracketTrials(bracket)
    for number in range(num_trials or bracket.num_trials):
        assert trials.add(plan(number)) == replace(plan(number), pause_after=bracket.rungs[0])
    return trials


def numbers(plans: list[TrialPlan]) -> list[int]:
    return [each.number for each in plans]


def test_the_best_third_goes_on_once_all_have_come_to_the_rung() -> None:
    trials = filled(NINE)
    for number in range(8):
        trials.wait(number, [number / 10])
        assert trials.decide() == ([], [])
    trials.wait(8, [0.35])
    going_on, ended = trials.decide()
    assert going_on == [replace(plan(number), pause_after=3) for number in (5, 6, 7)]
    assert numbers(ended) == [0, 1, 2, 3, 4, 8]
    for number, score in ((7, 0.7), (6, 0.9), (5, 0.8)):
        trials.wait(number, [score])
    going_on, ended = trials.decide()
    assert going_on == [plan(6)], "after the last rung a trial runs to its own end"
    assert numbers(ended) == [5, 7]
    assert trials.is_decided


def test_of_equal_scores_the_earlier_trial_goes_on() -> None:
    trials = filled(Bracket(3, (1,), 3))
    for number in (2, 1, 0):
        trials.wait(number, [0.5])
    assert numbers(trials.decide()[0]) == [0]


def test_an_unfilled_bracket_decides_once_no_other_trial_can_join() -> None:
    trials = filled(NINE, 4)
    for number in range(4):
        trials.wait(number, [number / 10])
    assert trials.decide() == ([], [])
    trials.is_closed = True
    assert [numbers(plans) for plans in trials.decide()] == [[3], [0, 1, 2]]


def test_a_trial_that_failed_is_left_out_and_one_that_ended_by_itself_is_compared() -> None:
    trials = filled(NINE)
    trials.end(8, 0.9)
    for number in (0, 1, 2):
        trials.end(number, None)
    for number in (3, 4, 5, 6, 7):
        trials.wait(number, [number / 10])
    going_on, ended = trials.decide()
    assert numbers(going_on) == [7], "two of six, and one of them has ended already"
    assert numbers(ended) == [3, 4, 5, 6]


def test_a_bracket_whose_best_have_all_ended_ends_the_others() -> None:
    trials = filled(NINE, 3)
    trials.is_closed = True
    trials.end(0, 0.9)
    for number in (1, 2):
        trials.wait(number, [0.1])
    assert [numbers(plans) for plans in trials.decide()] == [[], [1, 2]]
    assert trials.is_decided


def test_a_bracket_of_failures_is_decided() -> None:
    trials = filled(Bracket(3, (1, 3), 3))
    for number in range(3):
        trials.end(number, None)
    assert trials.decide() == ([], [])
    assert trials.is_decided


def scores(num_trials: int) -> st.SearchStrategy[list[tuple[float, float, float]]]:
    """Best scores so far of each trial, at the two rungs and at the end."""
    one = st.lists(st.sampled_from([n / 4 for n in range(5)]), min_size=3, max_size=3).map(
        lambda values: (values[0], max(values[:2]), max(values))
    )
    return st.lists(one, min_size=num_trials, max_size=num_trials)


def run_all(
    found: list[tuple[float, float, float]], order: random.Random, ended: Mapping[int, float], stop_after: int = 1000
) -> dict[int, float]:
    """Run a bracket in a random order; returns the final scores of what ends, `ended` before included."""
    trials, final = filled(NINE), dict(ended)
    for number, score in ended.items():
        trials.end(number, score)
    running: dict[int, int | None] = {number: 1 for number in range(9) if number not in ended}
    while running and len(final) - len(ended) < stop_after:
        number = order.choice(sorted(running))
        pause_after = running.pop(number)
        if pause_after is None:
            final[number] = found[number][2]
            trials.end(number, final[number])
        else:
            trials.wait(number, [found[number][pause_after // 3]])
        going_on, losers = trials.decide()
        running |= {each.number: each.pause_after for each in going_on}
        final |= {each.number: found[each.number][(pause_after or 3) // 3] for each in losers}
    return final


@given(scores(9), st.integers(0, 1000), st.integers(1, 9))
def test_order_and_interruption_change_no_decision(
    found: list[tuple[float, float, float]], seed: int, stop_after: int
) -> None:
    whole = run_all(found, random.Random(0), {})
    assert len(whole) == 9
    first = run_all(found, random.Random(seed), {}, stop_after)
    known = dict(random.Random(seed).sample(sorted(first.items()), min(stop_after, len(first))))
    assert run_all(found, random.Random(seed + 1), known) == whole
