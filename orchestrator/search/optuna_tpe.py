"""Points that Optuna's TPE sampler proposes from the scores of earlier ones, by ask and tell.

TPE: tree-structured Parzen estimator (Bergstra et al. 2011, "Algorithms for hyper-parameter optimization"). Optuna and
numpy are imported when the search begins: specs import this module, and stay light.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from orchestrator.search.axes import Axis, IntUniform, LogUniform, Point, Uniform
from orchestrator.search.base import Search

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

_ASKS_PER_POINT = 50
"""Asks in a row that bring known points only, after which the search ends: the space is used up."""


class OptunaSearch(Search):
    """The points of one Optuna study.

    The order in which scores arrive shapes what comes next: a search repeats exactly when its trials run one at a time.
    The points of an earlier attempt are asked for first, so that the study learns from them again.
    """

    learns = True
    _study: "optuna.Study"
    _asked: "list[optuna.Trial]"
    _numbers: dict[str, int]
    """Number of each point that was asked, by its JSON, which tells 1 and true apart."""
    _scores: dict[int, float | None]

    @property
    def num_points(self) -> int:
        assert self._max_points is not None
        return self._max_points

    def propose(self) -> Iterator[Point]:
        import optuna

        from bert_core.counter_random import derive_key

        seed = derive_key(self._seed, "optuna", len(self._proposed)) % 2**32
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
        for point in self._proposed:
            self._study.enqueue_trial(dict(point))
        self._asked, self._numbers, self._scores = [], {}, {}
        distributions = {name: _distribution(axis) for name, axis in self._space.items()}
        while len(self._asked) < self.num_points and (new := self._ask_new(distributions)) is not None:
            yield new

    def _ask_new(self, distributions: "dict[str, BaseDistribution]") -> Point | None:
        """The next point that was not asked before; a known one is told its score again, and passed over."""
        for _ in range(_ASKS_PER_POINT):
            trial = self._study.ask(distributions)
            point: Point = trial.params
            known = self._numbers.setdefault(json.dumps(point, sort_keys=True), len(self._asked))
            if known == len(self._asked):
                self._asked.append(trial)
                return point
            self._tell(trial, self._scores.get(known))
        return None

    def tell(self, number: int, score: float | None) -> None:
        self._scores[number] = score
        self._tell(self._asked[number], score)

    def _tell(self, trial: "optuna.Trial", score: float | None) -> None:
        import optuna

        if score is None:
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(trial, score)


def _distribution(axis: Axis) -> "BaseDistribution":
    """An axis as Optuna describes it."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match axis:
        case Uniform((low, high)):
            return FloatDistribution(low, high)
        case LogUniform((low, high)):
            return FloatDistribution(low, high, log=True)
        case IntUniform((first, last)):
            return IntDistribution(first, last)
    assert axis.listed is not None, f"Optuna knows no distribution for {axis}"
    return CategoricalDistribution(axis.listed)
