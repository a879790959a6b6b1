"""The contract of a scheduler: it names the scheduler of Ray Tune that does the work, and sets its options.

Trials report a score after each evaluation but the last; higher is better. The scheduler says then whether a trial goes
on. It never ends the best of the trials it compares, and it need not end any: a trial stops by itself after its last
evaluation.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar


class Scheduler(ABC):
    """One way to end weak trials early."""

    tune_class: ClassVar[str]
    """The name of the class in `ray.tune.schedulers`: a name, since this package must not import Ray."""

    prunes: ClassVar[bool] = True
    """Whether weak trials end early: only then do reduction factor and grace say something."""

    @abstractmethod
    def options(
        self, *, score: str, evaluation: str, max_evaluations: int, reduction_factor: int, grace_evaluations: int
    ) -> Mapping[str, object]:
        """The arguments of `tune_class`.

        Args:
            score: the key of a report's score.
            evaluation: the key of a report's count of evaluations so far, the measure of a trial's time.
            max_evaluations: evaluations of the longest trial.
            reduction_factor: one in so many trials goes on at each decision.
            grace_evaluations: evaluations of a trial before the first decision about it.
        """
