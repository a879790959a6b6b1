"""Queue of a sweep's trials: each proposed point with every seed, on every fold. Knows nothing of Ray."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from orchestrator.finetuning.search_space import TrialPlan, build_search, plan_trials
from orchestrator.results import TrialResult
from orchestrator.search.axes import Point
from orchestrator.specs import SweepSpec


@dataclass
class _OpenPoint:
    """A proposed point, some of whose trials have not ended."""

    num_trials_left: int
    scores: list[float] = field(default_factory=list)


class TrialQueue:
    """The trials of a sweep in order; those that an earlier attempt finished are counted, but not handed out again.

    Args:
        metric: the score that ranks trials; a search learns from its mean over a point's trials.
        finished: results of an earlier attempt by trial key.
        proposed: the points of an earlier attempt of a search that learns; they come again first, under their numbers.
        on_proposed: given each new point of a search that learns, before a trial of it is handed out: without them a
            later attempt could not propose the same.
    """

    def __init__(
        self,
        spec: SweepSpec,
        metric: str,
        finished: Mapping[str, TrialResult],
        *,
        proposed: Sequence[Point] = (),
        on_proposed: Callable[[Point], object] = lambda point: None,
    ) -> None:
        self._spec = spec
        self._metric = metric
        self._finished = finished
        self._num_saved = len(proposed)
        self._on_proposed = on_proposed
        self._search = build_search(spec, proposed)
        self._proposals = self._search.propose()
        self._num_points = 0
        self._open: dict[int, _OpenPoint] = {}
        self._waiting: deque[TrialPlan] = deque()
        self._num_running = 0

    @cached_property
    def num_trials(self) -> int:
        """Largest number of trials, finished ones included."""
        return self._search.num_points * self._spec.trials_per_point

    def next(self) -> TrialPlan | None:
        """The next trial to run; None when there is no other."""
        if not self._fill():
            return None
        self._num_running += 1
        return self._waiting.popleft()

    def is_done(self) -> bool:
        """Whether all trials ran and ended."""
        return self._num_running == 0 and not self._fill()

    def record(self, plan: TrialPlan, result: TrialResult) -> None:
        """Record the result of a trial that `next` gave."""
        self._num_running -= 1
        self._close(plan, result)

    def _fill(self) -> bool:
        """Propose points until a trial waits to start; return False when there is no other."""
        while not self._waiting:
            point = next(self._proposals, None)
            if point is None:
                return False
            plans = plan_trials(self._spec, point, self._num_points)
            self._open[self._num_points] = _OpenPoint(len(plans))
            self._num_points += 1
            if self._search.learns and self._num_points > self._num_saved:
                self._on_proposed(point)
            for plan in plans:
                if plan.key in self._finished:
                    self._close(plan, self._finished[plan.key])
                else:
                    self._waiting.append(plan)
        return True

    def _close(self, plan: TrialPlan, result: TrialResult) -> None:
        """Count a trial as ended; after the last of its point the search is told their mean score."""
        number = plan.number // self._spec.trials_per_point
        point = self._open[number]
        score = result.metrics.get(self._metric)
        if score is not None:
            point.scores.append(score)
        point.num_trials_left -= 1
        if point.num_trials_left == 0:
            del self._open[number]
            is_whole = len(point.scores) == self._spec.trials_per_point or len(self._spec.folds) == 1
            mean = sum(point.scores) / len(point.scores) if point.scores and is_whole else None
            self._search.tell(number, mean)
