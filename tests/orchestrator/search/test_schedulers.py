"""Schedulers as data: what they ask of Ray Tune. Run alone: pytest tests/orchestrator/search/test_schedulers.py"""

from orchestrator.search.schedulers import SCHEDULERS


def options(name: str) -> dict[str, object]:
    return dict(SCHEDULERS[name].options(score="f1", evaluation="count", max_evaluations=6))


def test_none_lets_trials_end_by_themselves() -> None:
    assert SCHEDULERS["none"].tune_class == "FIFOScheduler"
    assert options("none") == {}


def test_asha_halves_by_evaluations_and_never_stops_a_finished_trial() -> None:
    assert SCHEDULERS["asha"].tune_class == "ASHAScheduler"
    assert options("asha") == {
        "time_attr": "count",
        "metric": "f1",
        "mode": "max",
        "max_t": 7,
        "grace_period": 1,
        "reduction_factor": 3,
    }
