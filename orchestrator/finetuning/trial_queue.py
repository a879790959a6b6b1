"""Queue of a sweep's trials: each proposed point with every seed. Knows nothing of Ray.

A trial whose scheduler compares it with others at certain evaluations is handed out again and again, each time until it
waits; then it goes on, where trials exchange weights perhaps from another's, or `next_pruned` names it.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from orchestrator.finetuning.bracket_trials import BracketTrials
from orchestrator.finetuning.population import Comparison, Population
from orchestrator.finetuning.search_space import TrialPlan, build_brackets, build_search, plan_trials
from orchestrator.results import TrialResult
from orchestrator.search.axes import Point
from orchestrator.search.schedulers import SCHEDULERS
from orchestrator.search.schedulers.base import Bracket
from orchestrator.specs import SweepSpec


@dataclass
class _OpenPoint:
    """A proposed point, some of whose trials have not ended."""

    num_trials_left: int
    scores: list[float] = field(default_factory=list)


class TrialQueue:
    """The trials of a sweep in order; those that an earlier attempt finished are counted, but not handed out again.

    Args:
        metric: the score that ranks trials; a search learns from its mean over a point's seeds.
        finished: results of an earlier attempt by trial key.
        proposed: the points of an earlier attempt of a search that learns; they come again first, under their numbers.
        on_proposed: given each new point of a search that learns, before a trial of it is handed out: without them a
            later attempt could not propose the same.
        compared: comparisons of an earlier attempt, where trials exchange weights.
        on_compared: given each new comparison, with the plans by which the trials came to it, before one goes on.
    """

    def __init__(
        self,
        spec: SweepSpec,
        metric: str,
        finished: Mapping[str, TrialResult],
        *,
        proposed: Sequence[Point] = (),
        on_proposed: Callable[[Point], object] = lambda point: None,
        compared: Sequence[Comparison] = (),
        on_compared: Callable[[Comparison, Sequence[TrialPlan]], object] = lambda comparison, plans: None,
    ) -> None:
        self._spec = spec
        self._metric = metric
        self._finished = finished
        self._num_saved = len(proposed)
        self._on_proposed = on_proposed
        self._compared, self._on_compared = compared, on_compared
        self._search = build_search(spec, proposed)
        self._proposals = self._search.propose()
        self._num_points = 0
        self._open: dict[int, _OpenPoint] = {}
        self._brackets = build_brackets(spec)
        self._filling: BracketTrials | Population | None = None
        self._bracket_of: dict[int, BracketTrials | Population] = {}
        self._waiting: deque[TrialPlan] = deque()
        self._going_on: deque[TrialPlan] = deque()
        self._pruned: deque[TrialPlan] = deque()
        self._num_open = 0

    @cached_property
    def num_trials(self) -> int:
        """Largest number of trials, finished ones included."""
        return self._search.num_points * len(self._spec.seeds)

    def next(self) -> TrialPlan | None:
        """The next trial to run; None when there is none at present, or no other (`is_used_up`)."""
        has_new = not self._going_on and self._fill()
        if self._going_on:  # looked at after the last bracket may have been closed
            return self._going_on.popleft()
        if not has_new:
            return None
        self._num_open += 1
        return self._waiting.popleft()

    def is_used_up(self) -> bool:
        """Whether `next` will give no other trial, whatever those do that run now."""
        return not self._fill() and not self._going_on and not self._bracket_of

    def is_done(self) -> bool:
        """Whether all trials ran and ended."""
        return self._num_open == 0 and not self._fill()

    def next_pruned(self) -> TrialPlan | None:
        """A trial that waited and is not to go on; None when there is no other. Each is to be recorded."""
        return self._pruned.popleft() if self._pruned else None

    def _fill(self) -> bool:
        """Propose points until a trial waits to start; return False when there is no other."""
        while not self._waiting:
            point = next(self._proposals, None)
            if point is None:
                self._close_last_bracket()
                return False
            plans = plan_trials(self._spec, point, self._num_points)
            self._open[self._num_points] = _OpenPoint(len(plans))
            self._num_points += 1
            if self._search.learns and self._num_points > self._num_saved:
                self._on_proposed(point)
            for plan in map(self._join_bracket, plans):
                if plan.key in self._finished:
                    self._close(plan, self._finished[plan.key])
                else:
                    self._waiting.append(plan)
        return True

    def _join_bracket(self, plan: TrialPlan) -> TrialPlan:
        """Put a trial into the bracket that is being filled, where there are brackets."""
        if self._filling is None or self._filling.is_closed:
            bracket = next(self._brackets, None)
            if bracket is None:
                return plan
            self._filling = self._open_bracket(bracket)
        self._bracket_of[plan.number] = self._filling
        return self._filling.add(plan)

    def _open_bracket(self, bracket: Bracket) -> BracketTrials | Population:
        if not SCHEDULERS[self._spec.scheduler].exchanges:
            return BracketTrials(bracket)
        return Population(bracket, self._spec.axes, self._spec.search_seed, self._compared, self._on_compared)

    def _close_last_bracket(self) -> None:
        """Let the trials of a bracket that stays unfilled wait for no others."""
        if self._filling is not None and not self._filling.is_closed:
            self._filling.is_closed = True
            self._compare(self._filling)

    def wait(self, plan: TrialPlan, scores: Sequence[float]) -> None:
        """Record the scores of a trial up to the evaluation after which it waits for others."""
        bracket = self._bracket_of[plan.number]
        bracket.wait(plan.number, scores)
        self._compare(bracket)

    def diverge(self, plan: TrialPlan) -> bool:
        """Let a trial that has diverged wait for others, to go on from a better one; False where it is to end."""
        bracket = self._bracket_of.get(plan.number)
        if not isinstance(bracket, Population) or plan.pause_after is None:
            return False
        bracket.diverge(plan.number)
        self._compare(bracket)
        return True

    def record(self, plan: TrialPlan, result: TrialResult) -> None:
        """Record the result of a trial that `next` or `next_pruned` gave."""
        self._num_open -= 1
        self._close(plan, result)

    def _compare(self, bracket: BracketTrials | Population) -> None:
        """Let the trials of a bracket go on, or end, once all of them wait."""
        going_on, pruned = bracket.decide()
        self._going_on += going_on
        self._pruned += pruned
        if bracket.is_decided:
            self._bracket_of = {number: other for number, other in self._bracket_of.items() if other is not bracket}

    def _close(self, plan: TrialPlan, result: TrialResult) -> None:
        """Count a trial as ended; after the last of its point the search is told their mean score."""
        score = result.metrics.get(self._metric)
        bracket = self._bracket_of.get(plan.number)
        if bracket is not None:
            bracket.end(plan.number, score)
            self._compare(bracket)
        number = plan.number // len(self._spec.seeds)
        point = self._open[number]
        if score is not None:
            point.scores.append(score)
        point.num_trials_left -= 1
        if point.num_trials_left == 0:
            del self._open[number]
            self._search.tell(number, sum(point.scores) / len(point.scores) if point.scores else None)
