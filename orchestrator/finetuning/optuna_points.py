"""Points that Optuna proposes from the scores of earlier ones (its TPE sampler, by ask and tell)."""

from collections.abc import Iterator, Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from bert_core.counter_random import derive_key
from orchestrator.finetuning.search_space import Point, axis_values
from orchestrator.specs import SweepSpec
from orchestrator.specs.axes import IntUniform, LogUniform, Uniform

_ASKS_PER_POINT = 50
"""A study that proposes only known points so many times over has used up its space."""


class OptunaPoints:
    """The points of an Optuna search, higher scores being better.

    The order in which scores arrive shapes what comes next: a search repeats exactly when its trials run one at a
    time. `earlier` are the points of an interrupted search; they come again first, so that the study learns from them.
    """

    def __init__(self, spec: SweepSpec, earlier: Sequence[Point] = ()) -> None:
        assert spec.trials is not None, "the spec asks for `trials` here"
        self._num_points = spec.trials
        self._distributions = {name: _distribution(axis) for name, axis in spec.space.items()}
        seed = derive_key(spec.search_seed, "optuna", len(earlier)) % 2**32
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
        for point in earlier:
            self._study.enqueue_trial(dict(point))
        self._asked: list[tuple[optuna.Trial, Point]] = []
        self._scores: dict[int, float | None] = {}

    def __iter__(self) -> Iterator[Point]:
        while len(self._asked) < self._num_points and (point := self._ask_new()) is not None:
            yield point

    def _ask_new(self) -> Point | None:
        for _ in range(_ASKS_PER_POINT):
            trial = self._study.ask(self._distributions)
            known = next((place for place, (_, point) in enumerate(self._asked) if point == trial.params), None)
            if known is None:
                point: Point = trial.params
                self._asked.append((trial, point))
                return point
            _tell(self._study, trial, self._scores.get(known))
        return None

    def points(self) -> list[Point]:
        """The points so far, in order."""
        return [point for _, point in self._asked]

    def tell(self, point_number: int, score: float | None) -> None:
        """The score of a point by its place in the iteration; None when all of its trials failed."""
        self._scores[point_number] = score
        _tell(self._study, self._asked[point_number][0], score)


def _tell(study: optuna.Study, trial: optuna.Trial, score: float | None) -> None:
    if score is None:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    else:
        study.tell(trial, score)


def _distribution(axis: object) -> BaseDistribution:
    match axis:
        case Uniform(uniform=(low, high)):
            return FloatDistribution(low, high)
        case LogUniform(log_uniform=(low, high)):
            return FloatDistribution(low, high, log=True)
        case IntUniform(int_uniform=(first, last)):
            return IntDistribution(first, last)
        case _:
            return CategoricalDistribution(axis_values(axis))  # type: ignore[arg-type]
