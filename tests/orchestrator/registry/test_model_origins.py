"""Scores on data that the model had used. Alone: pytest tests/orchestrator/registry/test_model_origins.py"""

import pytest

from orchestrator.base.results import MetricEvent
from orchestrator.registry import Registry
from orchestrator.registry.model_origins import SplitData, Used, data_used, use_of
from tests.orchestrator.registry.group_samples import evaluated, new_sweep, scored, seeds
from tests.orchestrator.registry.samples import model_result


def sweep_on(registry: Registry, **data: str) -> str:
    """A sweep on data of these digests whose model is registered."""
    sweep = new_sweep(registry)
    registry.trials.set_data(sweep, data)
    registry.models.register("m", model_result("d" * 64), sweep)
    return sweep


def add_test_score(registry: Registry, run_id: str, score: float = 0.77) -> None:
    registry.metrics.record(run_id, [MetricEvent(7, "test", {"accuracy": score})], final=True)


def test_an_honest_test_score_is_shown_beside_a_refused_one_whichever_is_newer(registry: Registry) -> None:
    """Test data are no part of a group: each run's test score is judged by the data of its own sweep."""
    for number, (rate, tests) in enumerate(((1e-5, ("v", "t")), (2e-5, ("t", "v")))):
        for test in tests:
            sweep = sweep_on(registry, train="x", validation="v", test=test)
            seeds(registry, [0.9 if test == "v" else 0.8], first=number, sweep=sweep, learning_rate=rate)
            (trial,) = registry.trials.table(sweep).values("id")
            add_test_score(registry, trial, 0.99 if test == "v" else 0.65)
    rows = registry.leaderboard().records
    assert [row["test"] for row in rows] == [0.65, 0.65]
    note = "1 of 2 test scores refused: the model was chosen on the test data"
    assert all(note in row["notes"] for row in rows)


def test_an_evaluated_model_is_ranked_and_told_whether_it_was_chosen_on_the_data(registry: Registry) -> None:
    seeds(registry, [0.8, 0.7], sweep=sweep_on(registry, train="x", validation="v"))
    for split, data in (("validation", "v"), ("validation", "other"), ("test", "t")):
        evaluated(registry, split, data, 0.8)
    refused = evaluated(registry, "test", "v", 0.99)
    reason = "the model was chosen on the test data"
    assert registry.test_refusals(registry.run_ids()) == {refused: reason}
    rows = {(row["kind"], row["split"], row["data"]): row for row in registry.leaderboard().records}
    chosen, refused_row = (rows["evaluate", split, "v"] for split in ("validation", "test"))
    assert (chosen["origin"], chosen["rank"], rows["sweep", "validation", "v"]["rank"]) == ("chosen", 2, 1)
    assert "its model was chosen on these data" in chosen["notes"]
    for place in (("validation", "other"), ("test", "t")):
        row = rows["evaluate", *place]
        assert (row["origin"], row["mean"], row["rank"]) == ("apart", 0.8, 1)
    assert (refused_row["mean"], refused_row["best"], refused_row["n"], refused_row["rank"]) == (None, None, 0, None)
    assert refused_row["notes"].startswith(f"score refused: {reason}")


@pytest.mark.parametrize("part", ["", "partly "])
def test_an_evaluation_on_data_that_its_model_was_trained_on_is_told_and_as_a_test_refused(
    registry: Registry, part: str
) -> None:
    beginning = {"train": "first 100", "train_whole": "w", "train_file": "f", "validation": "v", "validation_file": "g"}
    sweep_on(registry, **(beginning if part else {"train": "w", "validation": "v"}))
    for split in ("train", "validation", "test"):
        run = evaluated(registry, split, "w", 0.99, file="f")
    rows = {row["split"]: row for row in registry.leaderboard().records}
    assert {row["origin"] for row in rows.values()} == {f"{part}trained"}
    some = "at least some of " if part else ""
    for split in ("train", "validation"):
        assert rows[split]["mean"] == 0.99
        assert rows[split]["notes"].endswith(f"its model was trained on {some}these data")
    folder = registry.models.get("m").folder
    told = registry.earlier_use(folder, {"validation": "w", "validation_file": "f"}, "validation")
    assert told == f"the model was trained on {some}these data"
    assert registry.earlier_use(folder, {"validation": "other"}, "validation") is None
    reason = f"the model was trained on {some}the test data"
    assert (rows["test"]["mean"], rows["test"]["notes"]) == (None, f"score refused: {reason}")
    assert registry.test_refusals([run]) == {run: reason}


def test_an_evaluation_on_the_same_file_read_otherwise_is_told_and_not_refused(registry: Registry) -> None:
    sweep_on(registry, train="x", train_file="f", validation="v", validation_file="g")
    run = evaluated(registry, "test", "x without broken records", 0.8, file="f")
    (row,) = registry.leaderboard().records
    assert (row["mean"], row["origin"]) == (0.8, "same file")
    assert "trained or chosen on the same file, read another way" in row["notes"]
    assert registry.test_refusals([run]) == {}


def test_a_sweep_and_its_trial_are_refused_and_who_has_no_test_score_is_not(registry: Registry) -> None:
    """A sweep that chose on the first examples of its test file is refused, too, where the whole file is recorded."""
    whole = {"validation": "first 50", "validation_whole": "t", "validation_file": "f", "test": "t", "test_file": "f"}
    expected = {}
    for data, some in (({"validation": "v"}, ""), (whole, "at least some of "), ({"validation": "first 50"}, None)):
        sweep = sweep_on(registry, **{"train": str(some), "test": "v"} | data)
        best, _ = registry.trials.record(sweep, [scored(f"{score}", score) for score in (0.8, 0.7)])
        for run_id in (sweep, best):
            add_test_score(registry, run_id)
            if some is not None:
                expected[run_id] = f"the model was chosen on {some}the test data"
    assert registry.test_refusals(registry.run_ids()) == expected
    (row,) = (row for row in registry.leaderboard().records if row["data"] == "v")
    assert row["test"] is None
    assert "test score refused: the model was chosen on the test data" in row["notes"]


def test_a_group_of_evaluations_is_refused_where_one_of_them_is(registry: Registry) -> None:
    """An evaluation by an earlier version recorded no digest of the whole: of itself nothing is known."""
    sweep_on(registry, train="first 100", train_whole="w", validation="v")
    now, before = (evaluated(registry, "test", "first 50", 0.9, test_whole=whole) for whole in ("w", None))
    reason = "the model was trained on at least some of the test data"
    assert registry.test_refusals([now, before]) == {now: reason}
    (row,) = registry.leaderboard().records
    assert (row["mean"], row["completed"], row["rank"]) == (None, 2, None)
    assert row["notes"] == f"score refused: {reason}"


WHOLE = SplitData("whole", "whole", "file")
FIRST = SplitData("first 100", "whole", "file")
FIRST_FEW = SplitData("first 10", "whole", "file")
OTHERWISE = SplitData("read otherwise", "read otherwise", "file")
"""Data of the same file, of other columns or without its broken records."""
REST = SplitData("rest", "rest", "file of the rest")
"""Examples after the first 100, which stand in a file of their own: there is no limit that takes them."""
BEFORE = SplitData("whole of before", "whole of before")
"""Data of a run that was recorded before digests of files were."""


def used_of(trained_on: SplitData, chosen_on: SplitData) -> Used:
    """Data that a run with these digests uses."""
    digests = {"train": trained_on, "validation": chosen_on}
    ends = ("_digest", "_whole_digest", "_file_digest")
    return data_used({f"data.{split}{ends[at]}": one for split, data in digests.items() for at, one in enumerate(data)})


@pytest.mark.parametrize(
    ("trained_on", "chosen_on", "scored", "origin"),
    [
        (WHOLE, SplitData(), WHOLE, "trained"),
        (FIRST, SplitData(), FIRST, "trained"),
        (WHOLE, SplitData(), FIRST, "trained"),
        (FIRST, SplitData(), WHOLE, "partly trained"),
        (FIRST_FEW, SplitData(), FIRST, "partly trained"),
        (FIRST, SplitData(), FIRST_FEW, "partly trained"),
        (OTHERWISE, SplitData(), WHOLE, "same file"),
        (FIRST, SplitData(), REST, None),
        (BEFORE, SplitData(), WHOLE, None),
        (WHOLE, SplitData(), BEFORE, None),
        (WHOLE, REST, WHOLE, "trained"),
        (FIRST, REST, WHOLE, "partly trained"),
        (REST, WHOLE, FIRST, "chosen"),
        (REST, FIRST, WHOLE, "partly chosen"),
        (FIRST, WHOLE, WHOLE, "partly trained"),
        (OTHERWISE, FIRST, WHOLE, "partly chosen"),
        (REST, OTHERWISE, WHOLE, "same file"),
        (FIRST, FIRST, REST, "apart"),
        (BEFORE, BEFORE, WHOLE, "apart"),
        (BEFORE, BEFORE, BEFORE, "trained"),
        (SplitData(), SplitData(), WHOLE, None),
        (WHOLE, SplitData(), REST, None),
        (WHOLE, REST, SplitData(), None),
    ],
)
def test_the_origin_of_a_score_is_the_gravest_use_of_its_data_that_is_certain(
    trained_on: SplitData, chosen_on: SplitData, scored: SplitData, origin: str | None
) -> None:
    assert use_of(used_of(trained_on, chosen_on), scored) == origin
