"""Trials that exchange weights: who takes over from whom, with which values, and what an interruption leaves of it.

Run alone: pytest tests/orchestrator/finetuning/test_population.py
"""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.finetuning.population import Comparison, Population
from orchestrator.finetuning.search_space import Leg, TrialPlan
from orchestrator.search.axes import Choices, LogUniform
from orchestrator.search.schedulers.base import Bracket
from orchestrator.specs import RecipeSpec

SPACE = {"learning_rate": LogUniform((1e-4, 1e-2)), "dropout": Choices((0.0, 0.1, 0.2))}


def plan(number: int) -> TrialPlan:
    point = {"learning_rate": 1e-4 * (number + 1), "dropout": 0.1}
    return TrialPlan(number, point, RecipeSpec(tokenizer="own", seed=number, **point))  # type: ignore[arg-type]


class Trials:
    """A population of trials numbered from 0, and its comparisons, as they would be read from a file again."""

    def __init__(self, num_trials: int, known: Sequence[Comparison] = (), rungs: tuple[int, ...] = (1, 2)) -> None:
        self.compared = list(known)
        bracket = Bracket(None, rungs, 4)
        self.population = Population(bracket, SPACE, 0, known, lambda comparison, plans: self._note(comparison))
        self.plans = [self.population.add(plan(number)) for number in range(num_trials)]
        self.population.is_closed = True

    def _note(self, comparison: Comparison) -> None:
        self.compared.append(Comparison.from_json(json.loads(json.dumps(asdict(comparison)))))

    def compare(self, scores: Sequence[float | None]) -> Comparison:
        """Let each trial come to the next comparison with a score, or None for one that diverges on the way."""
        for number, score in enumerate(scores):
            assert self.population.decide() == ([], []), "one of them still runs"
            if score is None:
                self.population.diverge(number)
            else:
                self.population.wait(number, [0.99, score])
        self.plans, ended = self.population.decide()
        assert not ended
        return self.compared[-1]


def test_each_of_the_worst_quarter_takes_over_from_one_of_the_best_at_that_evaluation() -> None:
    trials = Trials(8)
    assert {plan.pause_after for plan in trials.plans} == {1}
    found = trials.compare([0.5, 0.9, 0.1, 0.6, 0.8, 0.2, 0.4, 0.3])
    assert [takeover.member for takeover in found.takeovers] == [2, 5]
    assert {takeover.donor for takeover in found.takeovers} <= {1, 4}
    for takeover in found.takeovers:
        donor, member = trials.plans[takeover.donor], trials.plans[takeover.member]
        assert member.legs == (Leg(1, takeover.after, donor.key),)
        assert (member.key, member.parameters) == (plan(member.number).key, plan(member.number).parameters)
        assert member.present_recipe.learning_rate == takeover.after["learning_rate"]
    assert [each.legs for each in trials.plans if each.number not in (2, 5)] == [
        (Leg(1, plan(number).point),) for number in (0, 1, 3, 4, 6, 7)
    ]
    assert {plan.pause_after for plan in trials.plans} == {2}


def test_new_values_are_near_the_donors_and_on_their_axes() -> None:
    seen = set()
    for takeover in Trials(80).compare([number / 100 for number in range(80)]).takeovers:
        before, after = plan(takeover.donor).point, takeover.after
        seen.add((round(float(after["learning_rate"]) / float(before["learning_rate"]), 9), after["dropout"]))
    assert seen == {(factor, dropout) for factor in (0.8, 1.2) for dropout in (0.0, 0.2)}


def test_values_of_each_part_are_known() -> None:
    trials = Trials(2)
    first = trials.compare([0.1, 0.9]).takeovers[0].after
    second = trials.compare([0.2, 0.9]).takeovers[0].after
    member = trials.plans[0]
    assert [dict(member.values_at(number)) for number in (1, 2, 3)] == [member.point, first, second]
    assert member.pause_after is None, "after the last comparison a trial runs to its end"
    assert trials.population.is_decided


def test_one_trial_is_compared_with_nobody_and_a_failed_one_is_left_out() -> None:
    trials = Trials(3)
    for number in (0, 2):
        trials.population.end(number, None)
    trials.population.wait(1, [0.5])
    (alone,), _ = trials.population.decide()
    assert alone.legs == (Leg(1, plan(1).point),)
    assert trials.compared == [Comparison(1, {1: 0.5}, ())]
    trials.population.end(1, None)
    assert trials.population.decide() == ([], [])
    assert trials.population.is_decided


def test_a_trial_that_diverged_begins_again_as_a_copy_of_a_better_one() -> None:
    trials = Trials(4)
    found = trials.compare([0.5, None, 0.9, 0.4])
    (takeover,) = found.takeovers
    assert (takeover.member, takeover.donor, takeover.is_copy) == (1, 2, True)
    assert trials.plans[1].legs == (Leg(1, takeover.after, plan(2).key, is_copy=True),)
    assert found.scores == {0: 0.5, 1: None, 2: 0.9, 3: 0.4}
    assert found.lines()[0].startswith("after evaluation 1 trial 1 (diverged) goes on from trial 2 (0.9000)")
    assert Trials(4, trials.compared).plans == trials.plans, "a later attempt decides otherwise"


def test_all_that_diverged_are_replaced_and_none_is_a_donor() -> None:
    trials = Trials(8)
    found = trials.compare([None, None, None, 0.1, None, 0.2, None, None])
    assert [takeover.member for takeover in found.takeovers] == [0, 1, 2, 4, 6, 7]
    assert {takeover.donor for takeover in found.takeovers} <= {3, 5}
    assert all(takeover.is_copy for takeover in found.takeovers)


def test_the_worst_that_did_not_diverge_keeps_its_own_measurements() -> None:
    found = Trials(8).compare([None, *(number / 10 for number in range(1, 8))])
    assert [(takeover.member, takeover.is_copy) for takeover in found.takeovers] == [(0, True), (1, False)]


def test_a_population_that_diverged_whole_ends_and_is_no_comparison() -> None:
    trials = Trials(2)
    for number in range(2):
        trials.population.diverge(number)
    going_on, ended = trials.population.decide()
    assert (going_on, [plan.number for plan in ended]) == ([], [0, 1])
    assert trials.population.is_decided
    assert trials.compared == []


def test_a_trial_that_failed_in_an_earlier_attempt_goes_on_alone() -> None:
    before = Trials(3)
    before.population.end(2, None)
    before.compare([0.1, 0.9])
    later = Trials(3, before.compared)
    assert later.plans[:2] == before.plans
    assert later.plans[2] == plan(2), "it begins anew and waits for nobody"


def test_lines_say_who_took_over_from_whom() -> None:
    (line,) = Trials(2).compare([0.1, 0.9]).lines()
    assert line.startswith("after evaluation 1 trial 0 (0.1000) goes on from trial 1 (0.9000), learning_rate 0.0001 → ")


@given(st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=2, max_size=9), st.integers(0, 99))
def test_order_and_interruption_change_no_decision(found: list[list[int]], seed: int) -> None:
    whole, size = Trials(len(found)), len(found)
    for rung in (0, 1):
        whole.compare([scores[rung] for scores in found])
    order = random.Random(seed)
    known: list[Comparison] = []
    for rung in (0, 1):
        attempt = Trials(size, known)
        for number in order.sample(range(size), size):
            attempt.population.wait(number, [found[number][rung]])
        attempt.plans, _ = attempt.population.decide()
        known = attempt.compared
    assert known == whole.compared
    assert attempt.plans == Trials(size, known).plans == whole.plans
