"""Population of trials that wait for one another and exchange weights (Jaderberg et al. 2017). Knows nothing of Ray.

After each comparison the worst quarter goes on from the best quarter's weights and optimizers, with values near theirs.
A trial that has diverged counts as worse than any other, and begins again there as a copy of a better one.
What is decided depends on the scores at the comparison, the trials' numbers and the sweep's seed alone. Each comparison
is handed out before anything follows from it: a sweep that goes on is given those of the earlier attempts, which stand.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bert_core.counter_random import derive_key, uniform
from orchestrator.finetuning.leader import rank
from orchestrator.finetuning.search_space import Leg, TrialPlan
from orchestrator.search.axes import Scalar, Space
from orchestrator.search.schedulers.base import Bracket

POPULATION = "population.jsonl"
"""File of a sweep's comparisons, in its folder."""
_FACTORS = (0.8, 1.2)
"""A value is multiplied by one of these (Jaderberg et al. 2017, explore by perturbation)."""


@dataclass(frozen=True)
class Takeover:
    """Decision that a trial goes on from a better one's weights and optimizer."""

    member: int
    donor: int
    donor_key: str
    before: Mapping[str, Scalar]
    """Values of the member's axes until then."""
    after: Mapping[str, Scalar]
    is_copy: bool = False
    """Whether the member had diverged, so that it has nothing of its own to keep."""


@dataclass(frozen=True)
class Comparison:
    """Comparison of all trials that have come to an evaluation, and what was decided."""

    rung: int
    """Number of the evaluation."""
    scores: Mapping[int, float | None]
    """Scores at that evaluation by the trial's number, None of one that has diverged; who is not there had failed."""
    takeovers: Sequence[Takeover]

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Comparison":
        """The comparison whose fields were written as JSON, where all keys are strings."""
        scores = {int(number): score for number, score in values["scores"].items()}
        return cls(values["rung"], scores, tuple(Takeover(**takeover) for takeover in values["takeovers"]))

    def lines(self) -> list[str]:
        """A line for a person per takeover."""
        return [
            f"after evaluation {self.rung} trial {one.member} ({_shown(self.scores[one.member])}) goes on from trial "
            f"{one.donor} ({_shown(self.scores[one.donor])})"
            + "".join(f", {name} {one.before[name]:g} → {value:g}" for name, value in one.after.items())
            for one in self.takeovers
        ]


def _shown(score: float | None) -> str:
    return "diverged" if score is None else f"{score:.4f}"


class Population:
    """Trials from the first that joins to the last comparison.

    Args:
        bracket: says when trials are compared, and which share of them changes.
        space: axes whose values change.
        seed: decides everything that is drawn at random.
        known: comparisons of earlier attempts, in order.
        on_compared: given each new comparison, and the plans by which the trials came to it.
    """

    def __init__(
        self,
        bracket: Bracket,
        space: Space,
        seed: int,
        known: Sequence[Comparison],
        on_compared: Callable[[Comparison, Sequence[TrialPlan]], object],
    ) -> None:
        self._one_in, self._space, self._seed = bracket.reduction_factor, space, seed
        self._known, self._on_compared = known, on_compared
        self._rungs = deque(bracket.rungs[len(known) :])
        self._members: dict[int, TrialPlan] = {}
        self._scores: dict[int, float | None] = {}
        self.is_closed = False
        """Whether no other trial joins, since the sweep has no more."""

    @property
    def is_decided(self) -> bool:
        """Whether no comparison is left."""
        return self.is_closed and not (self._rungs and self._members)

    def add(self, plan: TrialPlan) -> TrialPlan:
        """Take in a trial; returns the plan by which it comes to the next comparison.

        One that had failed before a comparison of an earlier attempt goes on to its own end, and is compared no more.
        """
        for comparison in self._known:
            if plan.number not in comparison.scores:
                return plan
            plan = _follow(plan, comparison)
        self._members[plan.number] = replace(plan, pause_after=self._next_rung)
        return self._members[plan.number]

    def wait(self, number: int, scores: Sequence[float]) -> None:
        """Take in the scores of a trial that waits; the last one counts: others would get those weights."""
        self._scores[number] = scores[-1]

    def diverge(self, number: int) -> None:
        """Take in that a trial has diverged on its way to the comparison."""
        self._scores[number] = None

    def end(self, number: int, score: float | None) -> None:
        """Leave out a trial that has ended: it has nothing to go on from."""
        self._members.pop(number, None)

    def decide(self) -> tuple[list[TrialPlan], list[TrialPlan]]:
        """Compare the trials once all have come: returns the plans by which they go on, and of those that end.

        None ends, unless all have diverged. Both are empty as long as one of them still runs, or may still join.
        """
        if not self.is_closed or not self._rungs or not self._members or self._members.keys() != self._scores.keys():
            return [], []
        if all(score is None for score in self._scores.values()):
            ended, self._members = list(self._members.values()), {}
            return [], ended
        comparison = self._compare(self._rungs.popleft())
        self._on_compared(comparison, list(self._members.values()))
        self._scores = {}
        self._members = {
            number: replace(_follow(plan, comparison), pause_after=self._next_rung)
            for number, plan in self._members.items()
        }
        return list(self._members.values()), []

    @property
    def _next_rung(self) -> int | None:
        return self._rungs[0] if self._rungs else None

    def _compare(self, rung: int) -> Comparison:
        """Let the worst quarter, one trial at least, take over from the best quarter; a trial alone stays as it is."""
        scores = {number: -math.inf if score is None else score for number, score in self._scores.items()}
        ranked = sorted(scores, key=lambda number: rank(scores[number], number))
        num_diverged = sum(score is None for score in self._scores.values())
        num_worst = max(1, len(ranked) // self._one_in) if len(ranked) > 1 else 0
        best = ranked[max(num_diverged, len(ranked) - num_worst) :]
        worst = ranked[: max(num_diverged, num_worst)]
        takeovers = tuple(self._take_over(rung, number, best) for number in sorted(worst))
        return Comparison(rung, dict(sorted(self._scores.items())), takeovers)

    def _take_over(self, rung: int, number: int, best: Sequence[int]) -> Takeover:
        """Draw a donor for a trial, and for each axis whether its value rises or falls."""
        shares = uniform(derive_key(self._seed, "takeover", rung, number), range(1 + len(self._space)))
        member, donor = self._members[number], self._members[best[int(shares[0] * len(best))]]
        values = donor.values_at(rung)
        after = {
            name: axis.near(values[name], _FACTORS[int(share * len(_FACTORS))])
            for (name, axis), share in zip(self._space.items(), shares[1:], strict=True)
        }
        before, has_diverged = dict(member.values_at(rung)), self._scores[number] is None
        return Takeover(number, donor.number, donor.key, before, after, is_copy=has_diverged)


def _follow(plan: TrialPlan, comparison: Comparison) -> TrialPlan:
    """The plan of a trial after a comparison."""
    found = [takeover for takeover in comparison.takeovers if takeover.member == plan.number]
    leg = Leg(comparison.rung, plan.values_at(comparison.rung))
    for takeover in found:
        leg = Leg(comparison.rung, takeover.after, takeover.donor_key, takeover.is_copy)
    return replace(plan, legs=(*plan.legs, leg))
