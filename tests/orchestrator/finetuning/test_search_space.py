"""Points, trials and their keys. Run alone: pytest tests/orchestrator/finetuning/test_search_space.py"""

import pytest
from pydantic import ValidationError

from orchestrator.errors import SpecError
from orchestrator.finetuning.search_space import (
    check_space,
    grid_points,
    most_evaluations,
    plan_trials,
    random_points,
    value_at,
)
from orchestrator.specs import RecipeSpec, SweepSpec
from orchestrator.specs.axes import Choice, IntUniform, LogUniform, Uniform
from orchestrator.specs.task import Head


def sweep(recipe: dict[str, object] | None = None, **fields: object) -> SweepSpec:
    task = {"id": "own", "head": "classification"}
    return SweepSpec.model_validate({"task": task, "recipe": {"tokenizer": "own", **(recipe or {})}, **fields})


def test_grid_walks_all_combinations_last_axis_fastest() -> None:
    spec = sweep(space={"learning_rate": [1e-4, 1e-3], "batch_size": {"choice": [8, 16]}})
    assert [tuple(point.values()) for point in grid_points(spec)] == [(1e-4, 8), (1e-4, 16), (1e-3, 8), (1e-3, 16)]


def test_grid_of_an_empty_space_is_one_point() -> None:
    assert list(grid_points(sweep())) == [{}]


def test_trials_caps_a_grid() -> None:
    spec = sweep(space={"learning_rate": [1e-4, 1e-3, 1e-2]}, trials=2)
    assert [point["learning_rate"] for point in grid_points(spec)] == [1e-4, 1e-3]


def test_value_listed_twice_is_tried_once() -> None:
    assert len(list(grid_points(sweep(space={"learning_rate": [1e-4, 1e-3, 1e-4]})))) == 2


def test_random_points_repeat_with_their_seed() -> None:
    space = {"learning_rate": {"log_uniform": [1e-5, 1e-3]}, "batch_size": [8, 16]}
    spec = sweep(space=space, search="random", trials=5)
    assert list(random_points(spec)) == list(random_points(spec))
    assert list(random_points(spec)) != list(random_points(spec.model_copy(update={"search_seed": 1})))


def test_more_random_trials_only_add_points() -> None:
    space = {"learning_rate": {"uniform": [1e-5, 1e-3]}, "epochs": [1.0, 2.0]}
    few, many = (list(random_points(sweep(space=space, search="random", trials=count))) for count in (3, 8))
    assert many[:3] == few


def test_random_points_are_different_and_end_with_the_space() -> None:
    spec = sweep(space={"batch_size": [8, 16], "epochs": [1.0, 2.0]}, search="random", trials=10)
    points = [tuple(point.values()) for point in random_points(spec)]
    assert sorted(points) == [(8, 1.0), (8, 2.0), (16, 1.0), (16, 2.0)]


def test_values_lie_within_their_axis() -> None:
    almost_one = 1 - 2.0**-53
    assert value_at(Uniform(uniform=(1.0, 3.0)), 0.25) == 1.5
    assert value_at(LogUniform(log_uniform=(1e-4, 1e-2)), 0.5) == pytest.approx(1e-3)
    assert [value_at(IntUniform(int_uniform=(2, 4)), share) for share in (0.0, 0.5, almost_one)] == [2, 3, 4]
    assert [value_at(Choice(choice=("a", "b")), share) for share in (0.0, 0.49, 0.5, almost_one)] == [
        "a",
        "a",
        "b",
        "b",
    ]


def test_each_point_is_tried_with_each_seed() -> None:
    plans = plan_trials(sweep(seeds=[3, 7]), {"learning_rate": 1e-3}, point_number=2)
    assert [(plan.number, plan.seed, plan.recipe.learning_rate) for plan in plans] == [(4, 3, 1e-3), (5, 7, 1e-3)]


def test_seeds_differ_in_key() -> None:
    first, second = plan_trials(sweep(seeds=[0, 1]), {}, 0)
    assert first.key != second.key


def test_key_tells_parameters_apart_and_ignores_where_they_came_from() -> None:
    by_recipe = plan_trials(sweep(recipe={"learning_rate": 1e-3}), {}, 0)[0]
    by_space = plan_trials(sweep(), {"learning_rate": 1e-3}, 5)[0]
    other = plan_trials(sweep(), {"learning_rate": 2e-3}, 0)[0]
    assert by_recipe.key == by_space.key != other.key


def test_range_of_fractions_on_a_whole_number_is_refused() -> None:
    with pytest.raises(SpecError, match=r"space\.batch_size has .*, which .* refuses; it must be a whole number"):
        check_space(sweep(space={"batch_size": {"uniform": [8, 64]}}, search="random", trials=1), "classification")


@pytest.mark.parametrize(
    ("head", "recipe", "space", "complaint"),
    [
        ("qa", {"token_decoder": "crf"}, {}, r"recipe\.token_decoder: .* head is qa: leave 'crf' out"),
        ("qa", {}, {"context": ["sentence"]}, r"space\.context: .* head is qa: leave the axis out"),
        ("ner", {"doc_stride": 8}, {}, r"recipe\.doc_stride: .* head is ner: leave 8 out"),
        ("ner", {}, {"pooling": ["cls"]}, r"space\.pooling: it is for vectors"),
        ("ner", {"temperature": 1.0}, {}, r"recipe\.temperature: it is for vectors"),
    ],
)
def test_fields_that_the_head_has_no_use_for_are_refused(
    head: Head, recipe: dict[str, object], space: dict[str, object], complaint: str
) -> None:
    with pytest.raises(SpecError, match=complaint):
        check_space(sweep(recipe, space=space), head)


def test_frozen_trials_with_a_rate_for_each_layer_are_refused() -> None:
    sets = {"layer_learning_rate_decay": 0.9}
    check_space(sweep(sets), "classification")
    with pytest.raises(SpecError, match="freeze_encoder and layer_learning_rate_decay contradict"):
        check_space(sweep(sets, space={"freeze_encoder": [False, True]}), "classification")


def test_a_width_of_layers_that_some_trials_lack_is_refused() -> None:
    spec = sweep({"lstm_hidden_size": 16, "num_lstm_layers": 1}, space={"num_lstm_layers": [1, 0]})
    with pytest.raises(SpecError, match=r"space\.num_lstm_layers has 0, where recipe\.lstm_hidden_size says nothing"):
        check_space(spec, "ner")


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"lstm_hidden_size": 16}, "says nothing without num_lstm_layers"),
        ({"lstm_hidden_size": 15, "num_lstm_layers": 1}, "15 is for two directions; make it an even number"),
    ],
)
def test_a_width_that_cannot_be_is_refused(fields: dict[str, int], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        RecipeSpec.model_validate(fields)


def test_most_evaluations_are_those_of_the_longest_trial() -> None:
    assert most_evaluations(sweep(recipe={"epochs": 1.5, "evaluations_per_epoch": 4})) == 6
    space = {"epochs": [1.0, 3.0], "evaluations_per_epoch": {"int_uniform": [1, 5]}}
    assert most_evaluations(sweep(space=space, search="random", trials=1)) == 15
