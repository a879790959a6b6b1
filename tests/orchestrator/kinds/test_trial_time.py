"""The trial whose steps stand for all trials of a sweep, where a plan tells their time.

Alone: .venv/bin/pytest tests/orchestrator/kinds/test_trial_time.py
"""

from orchestrator.kinds.trial_time import first_recipe
from orchestrator.specs import SweepSpec


def test_the_first_recipe_has_the_first_value_of_a_list_and_the_smallest_of_a_range() -> None:
    """The dropout of a recipe is a model's own, None, where the spec says nothing."""
    spec = SweepSpec.model_validate(
        {
            "task": {"id": "sst2"},
            "recipe": {"tokenizer": "words", "epochs": 2},
            "space": {"dropout": {"uniform": [0.0, 0.3]}, "learning_rate": [1e-3, 1e-4]},
            "search": "random",
            "trials": 4,
        }
    )
    recipe = first_recipe(spec)
    assert (recipe.dropout, recipe.learning_rate, recipe.epochs) == (0.0, 1e-3, 2)
