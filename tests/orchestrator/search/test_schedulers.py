"""Schedulers as data: what they ask of Ray Tune. Run alone: pytest tests/orchestrator/search/test_schedulers.py"""

from orchestrator.search.schedulers import SCHEDULERS


def options(name: str, reduction_factor: int = 3, grace_evaluations: int = 1) -> dict[str, object]:
    scheduler = SCHEDULERS[name]
    return dict(
        scheduler.options(
            score="f1",
            evaluation="count",
            max_evaluations=6,
            reduction_factor=reduction_factor,
            grace_evaluations=grace_evaluations,
        )
    )


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


def test_factor_and_grace_of_asha_are_the_specs_as_far_as_trials_are_that_long() -> None:
    for asked, expected in ((4, 4), (7, 7), (100, 7)):
        given = options("asha", reduction_factor=2, grace_evaluations=asked)
        assert (given["reduction_factor"], given["grace_period"], given["max_t"]) == (2, expected, 7)
