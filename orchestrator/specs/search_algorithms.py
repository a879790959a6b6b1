"""Search algorithms: each proposes the points of a space in order, and may learn from their scores.

Points are numbered from 0 in the order of proposal. A search knows nothing of seeds, trials or Ray: the queue of trials
tries each point with every seed, and tells the search the mean of their scores.

A resumed sweep makes its search anew: the first points must be those of the earlier attempt, under the same numbers. A
search that does not learn proposes them anyway; a search that learns is given what it proposed.

Sources: Bergstra and Bengio 2012, "Random search for hyper-parameter optimization". Halton 1960, "On the efficiency of
certain quasi-random sequences of points in evaluating multi-dimensional integrals": coordinate j of point n is n
written in the j-th prime base, its digits mirrored at the point. Owen 2017, "A randomized Halton algorithm in R"
(https://arxiv.org/abs/1706.02808): a random permutation for each base and digit place breaks the patterns of large
bases; here with as many digits as a double holds. Bousquet et al. 2017 (https://arxiv.org/abs/1706.03200) compare such
points with random ones for settings of neural networks. TPE, tree-structured Parzen estimator: Bergstra et al. 2011,
"Algorithms for hyper-parameter optimization".
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count, islice, product
from math import prod
from typing import TYPE_CHECKING, ClassVar

from orchestrator.specs.search_axes import Axis, IntUniform, LogUniform, Point, Scalar, Space, Uniform

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

_DRAWS_PER_POINT = 100
"""Draws for each point after which a search gives up on finding another new one: the space is used up."""
_ASKS_PER_POINT = 50
"""Asks of Optuna in a row that bring known points only, after which the space is used up."""
_FRACTION_BITS = 53
"""Bits of a double's fraction: with no more digits than fit into them a share stays below 1."""


class Search(ABC):
    """One search algorithm at work on one space; the class says what the algorithm asks of a spec.

    Args:
        space: the axes, in the order of the spec; may be empty, which is a space of one point.
        max_points: propose no more points than this; None for all, where the algorithm does not need a number.
        seed: decides everything that is drawn at random.
        proposed: the points of an earlier attempt, in order; they come first. Empty for a search that does not learn.
    """

    needs_max_points: ClassVar[bool] = True
    """Whether the number of points must be given: the algorithm has no end of its own."""
    accepts_ranges: ClassVar[bool] = True
    """Whether an axis may be a range; otherwise each lists its values."""
    learns: ClassVar[bool] = False
    """Whether proposals depend on scores: only then must they be saved for a later attempt."""

    def __init__(self, space: Space, *, max_points: int | None, seed: int, proposed: Sequence[Point] = ()) -> None:
        assert max_points is not None or not self.needs_max_points, "the spec asks for `trials` here"
        self._space = space
        self._max_points = max_points
        self._seed = seed
        self._proposed = proposed

    @property
    @abstractmethod
    def num_points(self) -> int:
        """Largest number of points, those of an earlier attempt included; exact unless the search learns."""

    @abstractmethod
    def propose(self) -> Iterator[Point]:
        """Different points in order, each made when it is asked for, from the scores told by then; called once.

        The iterator ends after `max_points`, or when the space is used up.
        """

    def tell(self, number: int, score: float | None) -> None:  # noqa: B027 - what does not learn has nothing to do
        """Take in the score of a proposed point, higher being better; None when all its trials failed.

        Points end in any order; some never do, when an interrupted sweep is not continued.
        """


class GridSearch(Search):
    """Every combination of the listed values, the last axis running fastest; the first `max_points` where given."""

    needs_max_points = False
    accepts_ranges = False

    @property
    def num_points(self) -> int:
        num_combinations = prod(len(values) for values in self._values())
        return num_combinations if self._max_points is None else min(num_combinations, self._max_points)

    def propose(self) -> Iterator[Point]:
        for combination in islice(product(*self._values()), self._max_points):
            yield dict(zip(self._space, combination, strict=True))

    def _values(self) -> list[list[Scalar]]:
        return [list(dict.fromkeys(axis.listed or ())) for axis in self._space.values()]  # the spec refuses ranges


class DrawnSearch(Search):
    """`max_points` different points, or all where the space has fewer; a subclass says which shares a draw has.

    The n-th draw depends on n, never on a score: the first n points are the same for every `max_points`.
    """

    @abstractmethod
    def share(self, name: str, draw: int) -> float:
        """Place of a draw on the axis of that name: a number in [0, 1), decided by the seed."""

    @cached_property
    def num_points(self) -> int:
        return sum(1 for _ in self.propose())

    def propose(self) -> Iterator[Point]:
        assert self._max_points is not None
        seen: set[str] = set()
        for draw in range(self._max_points * _DRAWS_PER_POINT):
            point = {name: axis.value_at(self.share(name, draw)) for name, axis in self._space.items()}
            text = json.dumps(point)  # tells 1, 1.0 and true apart
            if text not in seen:
                seen.add(text)
                yield point
            if len(seen) == self._max_points:
                return


class RandomSearch(DrawnSearch):
    """Points drawn evenly and independently; a draw depends on the seed and the axis's name alone."""

    def share(self, name: str, draw: int) -> float:
        from bert_core.counter_random import derive_key, uniform  # specs import this module, and load no numpy

        return float(uniform(derive_key(self._seed, "search", name), draw))


class HaltonSearch(DrawnSearch):
    """Points of a scrambled Halton sequence, which cover a space more evenly than random ones.

    Each axis has a prime base; a draw depends on the seed and the axis's place in the spec.
    """

    def share(self, name: str, draw: int) -> float:
        digit_maps = self._digit_maps[name]
        base, mirrored = len(digit_maps[0]), 0
        for digit_map in digit_maps:
            draw, digit = divmod(draw, base)
            mirrored = mirrored * base + digit_map[digit]
        return float(mirrored / base ** len(digit_maps))

    @cached_property
    def _digit_maps(self) -> Mapping[str, list[list[int]]]:
        """Draw one permutation of the base's digits per digit place, the lowest place first, for each axis."""
        from bert_core.counter_random import derive_key, permutation  # specs import this module, and load no numpy

        primes = (n for n in count(2) if all(n % divisor for divisor in range(2, n)))
        return {
            name: [
                permutation(derive_key(self._seed, "halton", base, place), base).tolist()
                for place in range(int(_FRACTION_BITS / math.log2(base)))
            ]
            for name, base in zip(self._space, islice(primes, len(self._space)), strict=True)
        }


class OptunaSearch(Search):
    """Points that Optuna's TPE sampler proposes from the scores of earlier ones, by ask and tell.

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
        import optuna  # specs import this module, and stay light

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

        self._study.tell(trial, score, optuna.trial.TrialState.FAIL if score is None else None)


def _distribution(axis: Axis) -> "BaseDistribution":
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


SEARCHES: Mapping[str, type[Search]] = {
    "grid": GridSearch,
    "random": RandomSearch,
    "halton": HaltonSearch,
    "optuna": OptunaSearch,
}
"""Every search algorithm by the name that a spec's `search` gives it."""
