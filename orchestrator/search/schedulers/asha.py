"""ASHA: asynchronous successive halving (Li et al. 2018, https://arxiv.org/abs/1810.05934)."""

from collections.abc import Mapping

from orchestrator.search.schedulers.base import Scheduler


class Asha(Scheduler):
    """The best third of the trials goes on after 1, 3, 9, … evaluations; the others end there."""

    tune_class = "ASHAScheduler"

    def options(self, *, score: str, evaluation: str, max_evaluations: int) -> Mapping[str, object]:
        return {
            "time_attr": evaluation,
            "metric": score,
            "mode": "max",
            "max_t": max_evaluations + 1,  # beyond the last evaluation: a trial stops by its own schedule
            "grace_period": 1,
            "reduction_factor": 3,
        }
