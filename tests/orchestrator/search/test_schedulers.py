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


def brackets(max_evaluations: int, **fields: int) -> list[tuple[int, tuple[int, ...]]]:
    """Trials and rungs of HyperBand's brackets up to the first that comes again."""
    found: list[tuple[int, tuple[int, ...]]] = []
    values = {"reduction_factor": 3, "grace_evaluations": 1} | fields
    for bracket in SCHEDULERS["hyperband"].brackets(max_evaluations=max_evaluations, **values):
        if (bracket.num_trials, bracket.rungs) in found:
            return found
        assert bracket.reduction_factor == values["reduction_factor"]
        found.append((bracket.num_trials, bracket.rungs))
    return found


def test_hyperband_has_the_brackets_of_its_paper() -> None:
    """Li et al. 2017, table 1, without the last column: there a trial ends by itself."""
    assert brackets(81) == [
        (81, (1, 3, 9, 27)),
        (34, (3, 9, 27)),
        (15, (9, 27)),
        (8, (27,)),
        (5, ()),
    ]


def test_hyperband_leaves_trials_alone_for_the_grace_and_compares_none_that_are_short() -> None:
    assert brackets(10) == [(9, (1, 3)), (5, (3,)), (3, ())]
    assert brackets(10, grace_evaluations=2) == [(3, (3,)), (2, ())]
    assert brackets(8, reduction_factor=2) == [(8, (1, 2, 4)), (6, (2, 4)), (4, (4,)), (4, ())]
    assert brackets(2) == [(1, ())]


def test_a_population_is_all_of_a_sweep_and_compared_after_each_grace_but_not_at_its_end() -> None:
    for grace, rungs in ((1, (1, 2, 3, 4, 5)), (2, (2, 4)), (3, (3,)), (6, ())):
        found = SCHEDULERS["pbt"].brackets(max_evaluations=6, reduction_factor=3, grace_evaluations=grace)
        assert [(bracket.num_trials, bracket.rungs) for bracket in found] == [(None, rungs)]


def test_other_schedulers_let_no_trial_wait() -> None:
    for name in ("none", "asha"):
        assert list(SCHEDULERS[name].brackets(max_evaluations=81, reduction_factor=3, grace_evaluations=1)) == []
