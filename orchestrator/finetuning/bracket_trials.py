"""Trials of one bracket: they wait for one another at each rung, and the best of them go on. Knows nothing of Ray.

What is decided depends on the trials' scores and numbers alone. So a sweep that goes on decides the same again: of a
trial that ended in an earlier attempt the final score is enough, since it was left behind with that score, or it went
on and its score only became better.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.finetuning.leader import rank
from orchestrator.finetuning.search_space import TrialPlan
from orchestrator.search.schedulers.base import Bracket


@dataclass
class _Member:
    """A trial at the present rung."""

    plan: TrialPlan
    score: float | None = None
    """Best score so far, once it is known."""
    is_running: bool = True
    """Whether it has neither ended nor reached the rung."""
    waits: bool = False
    """Whether it can go on."""


class BracketTrials:
    """Trials of a bracket, from the first that joins to the last decision."""

    def __init__(self, bracket: Bracket) -> None:
        self._bracket = bracket
        self._rungs = deque(bracket.rungs)
        self._members: dict[int, _Member] = {}
        self.is_closed = False
        """Whether no other trial joins: it is full, or the sweep has no more."""

    @property
    def is_decided(self) -> bool:
        """Whether no comparison is left."""
        return self.is_closed and not self._rungs

    def add(self, plan: TrialPlan) -> TrialPlan:
        """Take in a trial; returns the plan by which it comes to the first rung."""
        self._members[plan.number] = _Member(plan)
        self.is_closed = len(self._members) == self._bracket.num_trials
        return replace(plan, pause_after=self._rungs[0] if self._rungs else None)

    def wait(self, number: int, scores: Sequence[float]) -> None:
        """Take in the scores of a trial that has reached the rung; the best one counts, as at its end."""
        member = self._members[number]
        member.score, member.is_running, member.waits = max(scores), False, True

    def end(self, number: int, score: float | None) -> None:
        """Take in the score of a trial that has ended by itself, None of one that failed; it is compared as it is."""
        if number in self._members:
            member = self._members[number]
            member.score, member.is_running, member.waits = score, False, False

    def decide(self) -> tuple[list[TrialPlan], list[TrialPlan]]:
        """Compare the trials once all are at the rung: returns the plans of those that go on, and of those that end.

        Both are empty as long as one of them still runs, or may still join.
        """
        go_on: list[TrialPlan] = []
        ends: list[TrialPlan] = []
        while not go_on and self._rungs and self.is_closed and not any(m.is_running for m in self._members.values()):
            best = {member.plan.number: member for member in self._take_best()}
            ends += [m.plan for number, m in self._members.items() if m.waits and number not in best]
            self._rungs.popleft()
            pause_after = self._rungs[0] if self._rungs else None
            for member in best.values():
                if member.waits:
                    member.is_running, member.waits = True, False
                    go_on.append(replace(member.plan, pause_after=pause_after))
            self._members = best
        return go_on, ends

    def _take_best(self) -> list[_Member]:
        """The best one in `reduction_factor` of the trials that did not fail, one at least, by number."""
        scored = [(rank(m.score, m.plan.number), m) for m in self._members.values() if m.score is not None]
        scored.sort(key=lambda pair: pair[0], reverse=True)
        best = [member for _, member in scored[: max(1, len(scored) // self._bracket.reduction_factor)]]
        return sorted(best, key=lambda member: member.plan.number)
