"""HyperBand (Li et al. 2017, https://arxiv.org/abs/1603.06560): successive halving in brackets.

Not Ray Tune's scheduler of this name: under a limit of concurrent trials that one ends no trial early (seen with 2.60),
and what it decides depends on which trial arrives first.
"""

from collections.abc import Iterator
from itertools import cycle

from orchestrator.search.schedulers.base import Bracket, Scheduler


class HyperBand(Scheduler):
    """The best one in `reduction_factor` of a bracket's trials goes on at each of its rungs; the next bracket has fewer
    trials, which are left alone for longer. After the bracket whose trials are not compared at all they come again."""

    def brackets(self, *, max_evaluations: int, reduction_factor: int, grace_evaluations: int) -> Iterator[Bracket]:
        """Yield algorithm 1 of the paper, again and again; budgets are whole evaluations, rounded down."""
        most_halvings = 0
        while grace_evaluations * reduction_factor ** (most_halvings + 1) <= max_evaluations:
            most_halvings += 1
        yield from cycle(
            Bracket(
                num_trials=-(-(most_halvings + 1) * reduction_factor**halvings // (halvings + 1)),
                rungs=tuple(max_evaluations // reduction_factor**left for left in range(halvings, 0, -1)),
                reduction_factor=reduction_factor,
            )
            for halvings in range(most_halvings, -1, -1)
        )
