"""Which trial comes next, and what the search learns when one ends. Knows nothing of Ray."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from orchestrator.finetuning.optuna_points import OptunaPoints
from orchestrator.finetuning.search_space import Point, TrialPlan, grid_points, plan_trials, random_points
from orchestrator.results import TrialResult
from orchestrator.specs import SweepSpec


class TrialQueue:
    """The trials of a sweep in order; those that an earlier attempt finished are counted, but not handed out again.

    Args:
        proposed: the points of an earlier attempt of an Optuna search; they come again first, under their numbers.
        on_proposed: given all points so far before a trial of a new one is handed out: no other search can repeat them.
    """

    def __init__(
        self,
        spec: SweepSpec,
        metric: str,
        finished: Mapping[str, TrialResult],
        *,
        proposed: Sequence[Point] = (),
        on_proposed: Callable[[Sequence[Point]], object] = lambda points: None,
    ) -> None:
        self._spec = spec
        self._metric = metric
        self._finished = finished
        self._num_proposed = len(proposed)
        self._on_proposed = on_proposed
        self._optuna: OptunaPoints | None = None
        if spec.search == "optuna":
            self._optuna = OptunaPoints(spec, proposed)
        self._points = self._iterate_points()
        self._waiting: deque[TrialPlan] = deque()
        self._num_points = 0
        self._open: dict[int, int] = {}
        self._scores: dict[int, list[float]] = {}
        self._num_running = 0

    def _iterate_points(self) -> Iterator[Point]:
        if self._optuna is not None:
            return iter(self._optuna)
        return random_points(self._spec) if self._spec.search == "random" else grid_points(self._spec)

    @property
    def num_trials(self) -> int:
        """How many trials the sweep has at most, finished ones included."""
        if self._spec.search == "grid":
            return sum(1 for _ in grid_points(self._spec)) * len(self._spec.seeds)
        assert self._spec.trials is not None
        return self._spec.trials * len(self._spec.seeds)

    def next(self) -> TrialPlan | None:
        """The next trial to run; None when there is no other."""
        if not self._fill():
            return None
        self._num_running += 1
        return self._waiting.popleft()

    def is_done(self) -> bool:
        """Whether all trials ran and ended."""
        return self._num_running == 0 and not self._fill()

    def _fill(self) -> bool:
        """See that a trial waits; False when there is no other."""
        while not self._waiting:
            point = next(self._points, None)
            if point is None:
                return False
            plans = plan_trials(self._spec, point, self._num_points)
            self._open[self._num_points] = len(plans)
            self._num_points += 1
            if self._optuna is not None and self._num_points > self._num_proposed:
                self._on_proposed(self._optuna.points())
            for plan in plans:
                if plan.key in self._finished:
                    self._learn(plan, self._finished[plan.key])
                else:
                    self._waiting.append(plan)
        return True

    def record(self, plan: TrialPlan, result: TrialResult) -> None:
        """A trial that was handed out ended."""
        self._num_running -= 1
        self._learn(plan, result)

    def _learn(self, plan: TrialPlan, result: TrialResult) -> None:
        """Once all trials of a point ended, Optuna learns their mean score."""
        number = plan.number // len(self._spec.seeds)
        if self._metric in result.metrics:
            self._scores.setdefault(number, []).append(result.metrics[self._metric])
        self._open[number] -= 1
        if self._open[number] == 0 and self._optuna is not None:
            scores = self._scores.get(number, [])
            self._optuna.tell(number, sum(scores) / len(scores) if scores else None)
