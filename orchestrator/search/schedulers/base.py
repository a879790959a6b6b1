"""The contract of a scheduler: how weak trials end early, or learn from better ones.

Trials report a score after each evaluation but the last; higher is better. A scheduler never ends the best of the
trials it compares, and it need not end any: a trial stops by itself after its last evaluation.

There are two ways. A scheduler that decides about a trial while it runs names the scheduler of Ray Tune that does the
work, and sets its options. One that makes trials wait for one another says in which brackets: a trial then saves a
checkpoint, leaves its process to others, and goes on from there if it is among the best; where the scheduler exchanges
weights, all go on, the worst ones from the best ones' checkpoints. Decisions in brackets depend on scores alone, not on
the order in which trials arrive.
"""

from abc import ABC
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Bracket:
    """Trials that start one after another and are compared with one another."""

    num_trials: int | None
    """Number of trials at most, None for all of the sweep; its last bracket may have fewer."""
    rungs: tuple[int, ...]
    """Evaluations, ascending, after which each trial waits for the others."""
    reduction_factor: int
    """One in so many of the trials that are compared goes on; where weights are exchanged, one in so many, the worst,
    goes on from one of the best as many."""


class Scheduler(ABC):  # noqa: B024 - a scheduler overrides what makes it different
    """One way to end weak trials early."""

    tune_class: ClassVar[str] = "FIFOScheduler"
    """The name of the class in `ray.tune.schedulers`: a name, since this package must not import Ray."""

    spec_fields: ClassVar[tuple[str, ...]] = ("reduction_factor", "grace_evaluations")
    """Names of the spec's fields that set it; another one's value is refused, as nothing would read it."""

    exchanges: ClassVar[bool] = False
    """Whether a weak trial goes on from a better one's weights with other values, where others would end it."""

    def options(
        self, *, score: str, evaluation: str, max_evaluations: int, reduction_factor: int, grace_evaluations: int
    ) -> Mapping[str, object]:
        """Return the arguments of `tune_class`.

        Args:
            score: the key of a report's score.
            evaluation: the key of a report's count of evaluations so far, the measure of a trial's time.
            max_evaluations: evaluations of the longest trial.
            reduction_factor: one in so many trials goes on at each decision.
            grace_evaluations: evaluations of a trial before the first decision about it.
        """
        return {}

    def brackets(self, *, max_evaluations: int, reduction_factor: int, grace_evaluations: int) -> Iterator[Bracket]:
        """Yield the brackets that trials fill one after another; none where trials never wait.

        Args:
            max_evaluations: evaluations of the longest trial.
            reduction_factor: one in so many trials goes on at each decision.
            grace_evaluations: evaluations of a trial before the first decision about it.
        """
        yield from ()

    @property
    def makes_wait(self) -> bool:
        """Whether trials wait for one another."""
        return type(self).brackets is not Scheduler.brackets
