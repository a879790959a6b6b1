"""No experiment that may take a GPU trains with attention dropout, which variable-length flash attention lacks.

Alone: .venv/bin/pytest tests/orchestrator/specs/test_attention_dropout.py
"""

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import pytest

from bert_core.config import BertConfig
from orchestrator.finetuning.search_space import listed_values
from orchestrator.models.config import build_config
from orchestrator.specs import DistillSpec, PretrainSpec, RecipeSpec, SweepSpec
from orchestrator.specs.fields import Spec
from orchestrator.specs.loading import load_spec
from orchestrator.specs.pipeline import stages_of
from orchestrator.specs.probe import ProbeSpec
from orchestrator.specs.references import RANDOM, STAGE_MARK

FOLDER = Path(__file__).parents[3] / "experiments"
FOR_CPUS = {"demo": "its figures are of two CPU cores, and its models too small for a GPU to be of use"}
"""Experiments that no GPU is meant for, with the reason."""
EXPERIMENTS = sorted(path.stem for path in FOLDER.glob("*.yaml"))
Stages = Mapping[str, Spec]


def trained_dropouts(spec: Spec, stages: Stages) -> Iterator[float]:
    """Yield the attention dropout of each model that a spec trains; none of a spec that trains none."""
    if isinstance(spec, PretrainSpec):
        assert spec.init_from == RANDOM, "no experiment goes on with the pretraining of another"
        yield build_config(spec.model, 30_522).attention_probs_dropout_prob
    elif isinstance(spec, SweepSpec):
        names = ("init_from", "dropout", "attention_dropout", "size", "family")
        for values in product(*(listed_values(spec, name) for name in names)):
            recipe = spec.recipe.model_copy(update=dict(zip(names, values, strict=True)))
            yield recipe_dropout(recipe, recipe.init_from, stages)
    elif isinstance(spec, ProbeSpec):
        yield recipe_dropout(spec.recipe, spec.run, stages)
    elif isinstance(spec, DistillSpec):
        assert spec.num_hidden_layers is not None, "every student takes layers of its teacher"
        yield (
            model_dropout(spec.teacher, stages)
            if spec.task is None
            else recipe_dropout(spec.recipe, spec.teacher, stages)
        )


def recipe_dropout(recipe: RecipeSpec, start: str, stages: Stages) -> float:
    """Attention dropout that a recipe trains a model with: its own value, else its dropout, else the model's."""
    if recipe.attention_dropout is not None:
        return recipe.attention_dropout
    if recipe.dropout is not None:
        return recipe.dropout
    if start == RANDOM:
        return BertConfig.from_size(recipe.size, recipe.family).attention_probs_dropout_prob
    return model_dropout(start, stages)


def model_dropout(name: str, stages: Stages) -> float:
    """Attention dropout of a model that another stage or experiment trains; a model from elsewhere has none that is
    known, and its recipe has to say it."""
    if name.startswith(STAGE_MARK):
        return max(trained_dropouts(stages[name.removeprefix(STAGE_MARK)], stages))
    assert name in EXPERIMENTS, f"{name} comes from elsewhere: recipe.attention_dropout has to say it"
    return max(trained_dropouts(load_spec(FOLDER / f"{name}.yaml"), {}))


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name not in FOR_CPUS])
def test_an_experiment_that_may_take_a_gpu_has_no_attention_dropout(name: str) -> None:
    stages = stages_of(load_spec(FOLDER / f"{name}.yaml"))
    found = {stage: set(trained_dropouts(spec, stages)) for stage, spec in stages.items()}
    assert {stage: dropouts for stage, dropouts in found.items() if dropouts - {0.0}} == {}


def test_the_rule_sees_a_dropout_that_is_the_recipes_or_the_models_own() -> None:
    recipe = RecipeSpec(tokenizer="words")
    assert recipe_dropout(recipe, RANDOM, {}) == 0.1
    assert recipe_dropout(recipe.model_copy(update={"dropout": 0.2}), RANDOM, {}) == 0.2
    assert recipe_dropout(recipe, "pretrain_base", {}) == 0.0
    (own,) = trained_dropouts(
        PretrainSpec.model_validate({"corpus": {"files": ["a"]}, "tokenizer": "t", "steps": 1}), {}
    )
    assert own == 0.1
    with pytest.raises(AssertionError, match="minilm comes from elsewhere"):
        recipe_dropout(recipe, "minilm", {})


def test_every_exception_is_an_experiment() -> None:
    assert FOR_CPUS.keys() <= set(EXPERIMENTS)
