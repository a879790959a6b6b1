"""Time of a sweep's trials on this machine's CPU, from a few steps of one of them."""

import math
import os
from collections.abc import Iterator

from bert_core.config import BertConfig
from bert_core.text.tokenization import Tokenizer
from orchestrator.finetuning.building import random_config
from orchestrator.finetuning.measured_steps import measure_examples
from orchestrator.finetuning.search_space import listed_values, value_bounds
from orchestrator.kinds.base import Fact, MeasuredTime
from orchestrator.kinds.resolved import Resolved
from orchestrator.kinds.start_checks import trains_on_gpu
from orchestrator.progress import counted
from orchestrator.specs import RecipeSpec, SweepSpec
from orchestrator.specs.references import RANDOM
from orchestrator.tasks import build_features, unread_notes

_EXAMPLES_LOOKED_AT = 1000


def measure_trials(spec: SweepSpec, inputs: Resolved, num_trials: int) -> MeasuredTime | None:
    """Measure steps of the first point of a space, and return what all trials would take, as many at a time as fit.

    Returns None where trials take GPUs, where only an earlier stage's run decides the model that the first point
    begins with, and for models whose steps take long.
    """
    if trains_on_gpu(spec.execution.gpus_per_trial):
        return None
    recipe = first_recipe(spec)
    start = start_of(recipe, inputs)
    if start is None:
        return None
    config, tokenizer = start
    task = inputs.task(spec.task).first_fold
    train, num_validation = task.examples("train"), len(task.examples("validation"))
    found = measure_examples(task, train, recipe, config, tokenizer, spec.threads_per_trial)
    if found is None:
        return None
    at_a_time = trials_at_a_time(spec, num_trials)
    of_what = f"{counted(num_trials, 'trial')}, {at_a_time:,} at a time"
    frozen_s = found.frozen_s * (len(train) + num_validation)
    each_s = found.training_s(recipe, max(1, round(recipe.train_fraction * len(train))), num_validation)
    return MeasuredTime(frozen_s + each_s * math.ceil(num_trials / at_a_time), of_what)


def trials_at_a_time(spec: SweepSpec, num_trials: int) -> int:
    """Number of trials that run at a time on this machine's CPUs; as the spec says, or one, where they take GPUs."""
    most = spec.execution.max_concurrent_trials
    if trains_on_gpu(spec.execution.gpus_per_trial):
        return min(num_trials, most or 1)
    fit = int((os.cpu_count() or 1) / max(spec.execution.cpus_per_trial, spec.threads_per_trial))
    return min(max(1, fit), num_trials, most or num_trials)


def start_of(recipe: RecipeSpec, inputs: Resolved) -> tuple[BertConfig, Tokenizer] | None:
    """Configuration and tokenizer that a recipe starts with, or those like them that a stage will make.

    Returns None where only the run decides them.
    """
    name = first_tokenizer(recipe)
    tokenizer = None if name is None else inputs.tokenizer_like(name)
    if tokenizer is None:
        return None
    config = random_config(recipe, tokenizer) if recipe.init_from == RANDOM else inputs.config(recipe.init_from)
    return None if config is None else (config, tokenizer)


def unread_facts(spec: SweepSpec, inputs: Resolved) -> Iterator[Fact]:
    """Yield what the first point's model cannot see of the training examples; of very many the first are looked at."""
    recipe, task = first_recipe(spec), inputs.task(spec.task)
    name = first_tokenizer(recipe)
    tokenizer = None if name is None else inputs.tokenizer_like(name)
    if tokenizer is not None:
        some = task.examples("train")[:_EXAMPLES_LOOKED_AT]
        for note in unread_notes(build_features(task, some, tokenizer, task.type.options_type.of_recipe(recipe))):
            yield "not read", note


def first_tokenizer(recipe: RecipeSpec) -> str | None:
    """Name of the tokenizer of a recipe, or of the model that has it; None where the recipe names none."""
    return recipe.tokenizer if recipe.init_from == RANDOM else recipe.init_from


def first_recipe(spec: SweepSpec) -> RecipeSpec:
    """Return the recipe of the first point; of an axis that ranges the smallest value, and the mean length of all.

    The length of a training is its epochs and its share of the examples.
    """
    values: dict[str, object] = {}
    for name in spec.axes:
        listed = listed_values(spec, name)
        values[name] = listed[0] if listed else spec.axes[name].value_at(0.0)
    means = {name: sum(value_bounds(spec, name)) / 2 for name in ("epochs", "train_fraction")}
    return spec.recipe.model_copy(update=values | means)
