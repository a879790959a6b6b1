"""Population based training (Jaderberg et al. 2017, https://arxiv.org/abs/1711.09846), in synchronous generations.

Not Ray Tune's scheduler of this name: what that one decides depends on which trial arrives first, and it would have to
be saved to go on after an interruption.
"""

from collections.abc import Iterator

from orchestrator.search.schedulers.base import Bracket, Scheduler


class PopulationBasedTraining(Scheduler):
    """All trials of the sweep wait for one another each time after `grace_evaluations` evaluations; then each of the
    worst quarter goes on from the weights of one of the best quarter, with values near that one's."""

    spec_fields = ("grace_evaluations",)
    exchanges = True

    def brackets(self, *, max_evaluations: int, reduction_factor: int, grace_evaluations: int) -> Iterator[Bracket]:
        """Yield all trials as one population; the paper exchanges a fifth of it rather than a quarter."""
        yield Bracket(None, tuple(range(grace_evaluations, max_evaluations, grace_evaluations)), reduction_factor=4)
