"""ASHA: asynchronous successive halving (Li et al. 2018, https://arxiv.org/abs/1810.05934)."""

from collections.abc import Mapping

from orchestrator.search.schedulers.base import Scheduler


class Asha(Scheduler):
    """One in `reduction_factor` trials, the best, goes on after the grace and each time after so many times as many
    evaluations: by default the best third after 1, 3, 9, … evaluations; the others end there."""

    tune_class = "ASHAScheduler"

    def options(
        self, *, score: str, evaluation: str, max_evaluations: int, reduction_factor: int, grace_evaluations: int
    ) -> Mapping[str, object]:
        longest = max_evaluations + 1  # beyond the last evaluation: a trial stops by its own schedule
        return {
            "time_attr": evaluation,
            "metric": score,
            "mode": "max",
            "max_t": longest,
            "grace_period": min(grace_evaluations, longest),
            "reduction_factor": reduction_factor,
        }
