"""From a spec to its trials and their keys, and what a space may hold.

Run alone: pytest tests/orchestrator/finetuning/test_search_space.py
"""

import pytest
from pydantic import ValidationError

from orchestrator.errors import SpecError
from orchestrator.finetuning.search_space import (
    check_space,
    most_evaluations,
    plan_trials,
    value_bounds,
)
from orchestrator.specs import RecipeSpec, SweepSpec


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


def test_key_tells_parameters_apart_and_ignores_where_they_came_from() -> None:
    by_recipe = plan_trials(sweep(recipe={"learning_rate": 1e-3}), {}, 0)[0]
    by_space = plan_trials(sweep(), {"learning_rate": 1e-3}, 5)[0]
    other = plan_trials(sweep(), {"learning_rate": 2e-3}, 0)[0]
    assert by_recipe.key == by_space.key != other.key


def test_range_of_fractions_on_a_whole_number_is_refused() -> None:
    with pytest.raises(SpecError, match=r"space\.batch_size has .*, which .* refuses; it must be a whole number"):
        check_space(sweep(space={"batch_size": {"uniform": [8, 64]}}, search="random", trials=1), "classification")


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
