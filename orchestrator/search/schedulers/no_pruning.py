"""No pruning: every trial runs to its own end."""

from collections.abc import Mapping

from orchestrator.search.schedulers.base import Scheduler


class NoPruning(Scheduler):
    """Trials run in order, first in, first out, and none is ended early."""

    tune_class = "FIFOScheduler"
    prunes = False

    def options(
        self, *, score: str, evaluation: str, max_evaluations: int, reduction_factor: int, grace_evaluations: int
    ) -> Mapping[str, object]:
        return {}
