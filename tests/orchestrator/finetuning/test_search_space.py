"""From a spec to its trials, their keys and order. Alone: pytest tests/orchestrator/finetuning/test_search_space.py"""

from collections.abc import Callable

import pytest
from pydantic import ValidationError

from orchestrator.base.errors import SpecError
from orchestrator.base.results import TrialResult
from orchestrator.finetuning.search_space import (
    TrialPlan,
    TrialQueue,
    build_search,
    check_space,
    listed_values,
    most_evaluations,
    plan_trials,
    value_bounds,
)
from orchestrator.specs import RecipeSpec, SweepSpec
from orchestrator.specs.search_algorithms import GridSearch
from orchestrator.specs.search_axes import Point
from tests.orchestrator.tasks.definitions import define

TASK = define("classification", ("good", "bad"))


def sweep(recipe: dict[str, object] | None = None, **fields: object) -> SweepSpec:
    task = {"id": "own", "head": "classification"}
    return SweepSpec.model_validate({"task": task, "recipe": {"tokenizer": "own", **(recipe or {})}, **fields})


def test_bounds_of_a_field_are_the_smallest_and_the_largest_value() -> None:
    space = {"batch_size": [16, 8], "epochs": {"uniform": [1, 2]}, "max_seq_length": {"int_uniform": [8, 64]}}
    spec = sweep(space=space, search="random", trials=1)
    assert value_bounds(spec, "batch_size") == (8, 16)
    assert value_bounds(spec, "epochs") == pytest.approx((1.0, 2.0))
    assert value_bounds(spec, "max_seq_length") == (8, 64)
    assert value_bounds(spec, "learning_rate") == (5e-5, 5e-5)


def test_each_point_is_tried_with_each_seed() -> None:
    plans = plan_trials(sweep(seeds=[3, 7]), {"learning_rate": 1e-3}, point_number=2)
    assert [(plan.number, plan.seed, plan.recipe.learning_rate) for plan in plans] == [(4, 3, 1e-3), (5, 7, 1e-3)]


def test_a_seed_starts_from_its_own_model_where_there_are_several() -> None:
    spec = sweep(seeds=[3, 7], space={"init_from": ["a | b", "c"]})
    plans = [
        plan for number, point in enumerate(build_search(spec).propose()) for plan in plan_trials(spec, point, number)
    ]
    assert [(plan.seed, plan.recipe.init_from, plan.starts) for plan in plans] == [
        (3, "a", "a | b"),
        (7, "b", "a | b"),
        (3, "c", None),
        (7, "c", None),
    ]
    told = [(plan.parameters["init_from"], plan.parameters.get("start")) for plan in plans]
    assert told == [("a | b", "a"), ("a | b", "b"), ("c", None), ("c", None)]
    assert listed_values(spec, "init_from") == ("a", "b", "c")


def test_each_point_is_tried_with_each_seed_on_each_fold() -> None:
    task = {"id": "own", "head": "classification", "split": {"folds": 3}}
    plans = plan_trials(sweep(seeds=[3, 7], task=task), {}, point_number=2)
    assert [(plan.number, plan.seed, plan.fold) for plan in plans[:4]] == [
        (12, 3, 0),
        (13, 3, 1),
        (14, 3, 2),
        (15, 7, 0),
    ]
    assert len({plan.key for plan in plans}) == len(plans) == 6
    assert plans[1].parameters["fold"] == 1
    with pytest.raises(ValidationError, match="a mean over some of the folds says nothing"):
        sweep(task=task, scheduler="asha")


def test_key_tells_parameters_apart_and_ignores_where_they_came_from() -> None:
    by_recipe = plan_trials(sweep(recipe={"learning_rate": 1e-3}), {}, 0)[0]
    by_space = plan_trials(sweep(), {"learning_rate": 1e-3}, 5)[0]
    other = plan_trials(sweep(), {"learning_rate": 2e-3}, 0)[0]
    assert by_recipe.key == by_space.key != other.key
    assert other.parameters.keys() == RecipeSpec.model_fields.keys()


def test_range_of_fractions_on_a_whole_number_is_refused() -> None:
    with pytest.raises(SpecError, match=r"space\.batch_size"):
        check_space(sweep(space={"batch_size": {"uniform": [8, 64]}}, search="random", trials=1), TASK)


@pytest.mark.parametrize(
    ("recipe", "space"),
    [
        ({"layer_learning_rate_decay": 0.9}, {"freeze_encoder": [False, True]}),
        ({"lstm_hidden_size": 16, "num_lstm_layers": 1}, {"num_lstm_layers": [1, 0]}),
        ({"focal_gamma": 1.0, "loss": "focal"}, {"loss": ["focal", "cross_entropy"]}),
        ({"class_weights": "balanced"}, {"token_decoder": ["softmax", "crf"]}),
    ],
)
def test_a_field_that_says_nothing_to_some_trials_is_refused(
    recipe: dict[str, object], space: dict[str, object]
) -> None:
    (silent, *_) = recipe
    task = define("ner", ("O", "B-x", "I-x")) if "loss" not in recipe and "freeze_encoder" not in space else TASK
    check_space(sweep(recipe), task)
    check_space(sweep(recipe, space={silent: [recipe[silent]]}), task)
    with pytest.raises(SpecError, match=rf"recipe\.{silent} "):
        check_space(sweep(recipe, space=space), task)


@pytest.mark.parametrize(
    ("recipe", "space", "named"),
    [
        ({"decay_ratio": 0.5}, {"warmup_ratio": [0.1, 0.7]}, "decay_ratio"),
        ({"decay_ratio": 0.5}, {"learning_rate_schedule": ["1-sqrt", "one_cycle"]}, "decay_ratio"),
        ({"freeze_encoder": True}, {"optimizer": ["adamw", "muon"]}, "optimizer"),
        ({"num_lstm_layers": 1}, {"lstm_hidden_size": [128, 129]}, "129"),
    ],
)
def test_values_that_contradict_one_another_in_some_trials_are_refused(
    recipe: dict[str, object], space: dict[str, list[object]], named: str
) -> None:
    task = define("ner", ("O", "B-x", "I-x")) if "lstm_hidden_size" in space else TASK
    check_space(sweep(recipe, space={name: values[:1] for name, values in space.items()}), task)
    with pytest.raises(SpecError, match=named):
        check_space(sweep(recipe, space=space), task)


def test_trials_that_are_the_same_are_refused() -> None:
    for space in ({"epochs": [2.5, 3, 3.0]}, {"init_from": ["a | b", "c", "a"]}):
        spec = sweep(space=space, seeds=[0, 1], search="random", trials=9)
        with pytest.raises(SpecError, match="are the same with seed 0"):
            check_space(spec, TASK)


@pytest.mark.parametrize("weights", [{"good": 2.0}, "balanced"])
def test_weights_are_of_the_tasks_own_labels(weights: object) -> None:
    check_space(sweep({"class_weights": weights}), TASK)
    with pytest.raises(SpecError, match=r"recipe\.class_weights.*'gud'.*good"):
        check_space(sweep({"class_weights": {"gud": 2.0}}), TASK)


def test_weights_of_labels_that_are_numbers_go_by_their_names() -> None:
    assert sweep({"class_weights": {0: 1, True: 3}}).recipe.class_weights == {"0": 1.0, "true": 3.0}
    with pytest.raises(ValidationError, match="class_weights"):
        sweep({"class_weights": {"good": 0.0}})


def test_fields_that_are_new_leave_the_keys_of_trials_alone_at_their_defaults() -> None:
    new = {name for name, info in RecipeSpec.model_fields.items() if info.json_schema_extra["is_new"]}  # type: ignore[index, call-overload]
    assert "class_weights" in new
    assert not new & RecipeSpec().identity_values().keys()
    assert RecipeSpec(class_weights="balanced").identity_values()["class_weights"] == "balanced"


@pytest.mark.parametrize(
    "fields",
    [
        {"lstm_hidden_size": 16},
        {"lstm_hidden_size": 15, "num_lstm_layers": 1},
        {"focal_gamma": 1.0},
        {"label_smoothing": 0.1, "loss": "focal"},
        {"unfreeze_every_epochs": 1.0, "freeze_encoder": True},
        {"optimizer": "muon", "freeze_encoder": True},
        {"decay_ratio": 0.5, "learning_rate_schedule": "one_cycle"},
    ],
)
def test_a_field_that_cannot_be_or_says_nothing_is_refused(fields: dict[str, object]) -> None:
    (name, *_) = fields
    with pytest.raises(ValidationError, match=f"{name} "):
        RecipeSpec.model_validate(fields)


def test_most_evaluations_are_those_of_the_longest_trial() -> None:
    assert most_evaluations(sweep(recipe={"epochs": 1.5, "evaluations_per_epoch": 4})) == 6
    space = {"epochs": [1.0, 3.0], "evaluations_per_epoch": {"int_uniform": [1, 5]}}
    assert most_evaluations(sweep(space=space, search="random", trials=1)) == 15


def ended(plan: TrialPlan, score: float | None) -> TrialResult:
    metrics = {} if score is None else {"accuracy": score}
    state = "FAILED" if score is None else "COMPLETED"
    return TrialResult(plan.key, plan.number, plan.parameters, state, plan.seed, metrics=metrics)


def drain(queue: TrialQueue, score: Callable[[TrialPlan], float | None]) -> list[TrialResult]:
    """Run all trials one at a time, as if each gave `score`."""
    results = []
    while (plan := queue.next()) is not None:
        results.append(ended(plan, score(plan)))
        queue.record(plan, results[-1])
    return results


def test_queue_hands_out_every_trial_once() -> None:
    queue = TrialQueue(sweep(space={"batch_size": [8, 16]}, seeds=[0, 1]), "accuracy", {})
    results = drain(queue, lambda plan: 0.5)
    assert [result.number for result in results] == [0, 1, 2, 3]
    assert queue.num_trials == 4
    assert queue.is_done()


def test_finished_trials_are_not_handed_out_again() -> None:
    spec = sweep(space={"batch_size": [8, 16]}, seeds=[0, 1])
    all_results = drain(TrialQueue(spec, "accuracy", {}), lambda plan: 0.5)
    finished = {result.key: result for result in (all_results[0], all_results[3])}
    assert [result.number for result in drain(TrialQueue(spec, "accuracy", finished), lambda plan: 0.5)] == [1, 2]


def test_a_used_up_space_is_counted_as_what_it_has() -> None:
    queue = TrialQueue(sweep(space={"batch_size": [8, 16]}, search="random", trials=10, seeds=[0, 1]), "accuracy", {})
    assert queue.num_trials == 4
    assert len(drain(queue, lambda plan: 0.5)) == 4
    assert queue.is_done()


def test_search_is_told_the_mean_of_a_point_once_its_last_trial_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, float | None]] = []

    class Listening(GridSearch):
        def tell(self, number: int, score: float | None) -> None:
            told.append((number, score))

    monkeypatch.setattr("orchestrator.finetuning.search_space.SEARCHES", {"grid": Listening})
    queue = TrialQueue(sweep(space={"batch_size": [8, 16, 32]}, seeds=[0, 1]), "accuracy", {})
    plans = [plan for _ in range(6) if (plan := queue.next()) is not None]
    for number, score in ((2, 0.5), (0, None), (3, 1.0), (4, None), (1, 0.25), (5, None)):
        queue.record(plans[number], ended(plans[number], score))
    assert told == [(1, 0.75), (0, 0.25), (2, None)]


OPTUNA = {
    "space": {"learning_rate": {"log_uniform": [1e-6, 1e-1]}, "size": ["tiny", "mini"]},
    "search": "optuna",
    "trials": 30,
}


def learning_rate(plan: TrialPlan) -> float:
    return plan.recipe.learning_rate


def test_optuna_continues_from_an_earlier_attempt() -> None:
    spec = sweep(**{**OPTUNA, "trials": 6}, seeds=[0, 1])
    proposed: list[Point] = []
    before = drain(TrialQueue(spec, "accuracy", {}, on_proposed=proposed.append), learning_rate)
    finished = {result.key: result for result in before[:5]}
    after = drain(TrialQueue(spec, "accuracy", finished, proposed=proposed[:3]), learning_rate)
    assert after[0].key == before[5].key, "the seed missing from the third point comes first"
    assert [result.number for result in after] == [5, 6, 7, 8, 9, 10, 11]
    assert not {result.key for result in after} & finished.keys()


def test_interrupted_optuna_trials_run_again_under_their_numbers() -> None:
    spec = sweep(**{**OPTUNA, "trials": 5})
    proposed: list[Point] = []
    queue = TrialQueue(spec, "accuracy", {}, on_proposed=proposed.append)
    begun = [plan for _ in range(3) if (plan := queue.next()) is not None]
    finished = {plan.key: ended(plan, 0.5) for plan in (begun[0], begun[2])}
    later = TrialQueue(spec, "accuracy", finished, proposed=list(proposed), on_proposed=proposed.append)
    after = drain(later, learning_rate)
    assert [result.number for result in after] == [1, 3, 4]
    assert after[0].key == begun[1].key
    assert len(proposed) == 5
