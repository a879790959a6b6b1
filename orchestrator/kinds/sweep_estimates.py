"""Estimates of a sweep before it starts: steps, parameters and time of its trials."""

import math
import os
from collections.abc import Iterator, Sequence

from bert_core.config import BertConfig
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.console import counted
from orchestrator.finetuning.building import random_config
from orchestrator.finetuning.measured_steps import measure_examples
from orchestrator.finetuning.search_space import listed_values, value_bounds
from orchestrator.kinds import estimates
from orchestrator.kinds.base import Fact, MeasuredTime
from orchestrator.kinds.resolved import Resolved
from orchestrator.specs import RecipeSpec, SweepSpec
from orchestrator.specs.recipe import RANDOM_FIELDS
from orchestrator.specs.references import RANDOM
from orchestrator.tasks.feature_cache import build_features, unread_notes
from orchestrator.tasks.task import Task
from orchestrator.training.batch_order import Schedule

_EXAMPLES_LOOKED_AT = 1000


def first_recipe(spec: SweepSpec) -> RecipeSpec:
    """Return the recipe of the first point; of an axis that ranges the smallest value, and the mean length of all.

    The length of a training is its epochs and its share of the examples.
    """
    values: dict[str, object] = {}
    for name in ("init_from", *spec.axes):  # which may name a model for each seed
        listed = listed_values(spec, name)
        values[name] = listed[0] if listed else spec.axes[name].value_at(0.0)
    means = {name: sum(value_bounds(spec, name)) / 2 for name in ("epochs", "train_fraction")}
    return spec.recipe.model_copy(update=values | means)


def first_tokenizer(recipe: RecipeSpec, inputs: Resolved) -> Tokenizer | None:
    """Tokenizer of a recipe, or of the model that has it, or one like that; None where only the run decides it."""
    name = recipe.tokenizer if recipe.init_from == RANDOM else recipe.init_from
    return None if name is None else inputs.tokenizer_like(name)


def trial_facts(spec: SweepSpec, inputs: Resolved, configs: Sequence[BertConfig | None]) -> Iterator[Fact]:
    """Yield what a trial takes; `configs` are those of the models that trials may start from."""
    task = inputs.task(spec.task).first_fold
    shortest, longest = trial_schedules(spec, task)
    others = list(spec.recipe.changed(RANDOM_FIELDS))
    if others and RANDOM not in listed_values(spec, "init_from"):
        yield "network", f"that of init_from; not used: {', '.join(f'recipe.{name}' for name in others)}"
    fewest, most = shortest.num_steps, longest.num_steps
    yield "steps of a trial", estimates.steps_text(task, fewest) + (f" to {most:,}" if most > fewest else "")
    if advice := estimates.short_training_advice(shortest):
        yield "note", f"{'a trial has' if most == fewest else 'the shortest trials have'} {advice}"
    yield from estimates.precision_facts(listed_values(spec, "precision"), spec.execution.gpus_per_trial, configs)
    num_parameters = most_parameters(configs)
    if num_parameters is not None:
        yield "parameters", f"{num_parameters:,}, and a small head"
        yield "memory of a trial", estimates.memory_text(num_parameters)
    yield from _unread_facts(spec, inputs)
    if spec.execution.max_concurrent_trials:
        yield "trials at a time", f"at most {spec.execution.max_concurrent_trials}"


def trial_schedules(spec: SweepSpec, task: Task) -> tuple[Schedule, Schedule]:
    """Schedules of the trials with the fewest and with the most steps."""
    (small, large), (short, long) = value_bounds(spec, "batch_size"), value_bounds(spec, "epochs")
    few, many = (num_taken(task, fraction) for fraction in value_bounds(spec, "train_fraction"))
    return Schedule(few, int(large), short, 1), Schedule(many, int(small), long, 1)


def num_taken(task: Task, fraction: float) -> int:
    """Training examples of a trial with a share of them, about."""
    return max(1, round(fraction * len(task.examples("train"))))


def most_parameters(configs: Sequence[BertConfig | None]) -> int | None:
    """Parameters of the largest encoder that a trial may have; None where none is known."""
    return max((estimates.count_encoder_parameters(config) for config in configs if config is not None), default=None)


def _unread_facts(spec: SweepSpec, inputs: Resolved) -> Iterator[Fact]:
    """Yield what the first point's model cannot see of the training examples; of very many the first are looked at."""
    recipe, task = first_recipe(spec), inputs.task(spec.task)
    tokenizer = first_tokenizer(recipe, inputs)
    if tokenizer is not None:
        some = task.examples("train")[:_EXAMPLES_LOOKED_AT]
        for note in unread_notes(build_features(task, some, tokenizer, task.type.options_type.of_recipe(recipe))):
            yield "not read", note


def measure_trials(spec: SweepSpec, inputs: Resolved, num_trials: int) -> MeasuredTime | None:
    """Measure steps of the first point of a space, and return what all trials would take, as many at a time as fit.

    Returns None where trials take GPUs, where only an earlier stage's run decides the model that the first point
    begins with, and for models whose steps take long.
    """
    if estimates.trains_on_gpu(spec.execution.gpus_per_trial):
        return None
    recipe = first_recipe(spec)
    tokenizer = first_tokenizer(recipe, inputs)
    if tokenizer is None:
        return None
    config = random_config(recipe, tokenizer) if recipe.init_from == RANDOM else inputs.config(recipe.init_from)
    if config is None:
        return None
    task = inputs.task(spec.task).first_fold
    train, num_validation = task.examples("train"), len(task.examples("validation"))
    found = measure_examples(task, train, recipe, config, tokenizer, spec.threads_per_trial)
    if found is None:
        return None
    frozen_s = found.frozen_s * (len(train) + num_validation)
    each_s = found.training_s(recipe, num_taken(task, recipe.train_fraction), num_validation)
    fit = int((os.cpu_count() or 1) / max(spec.execution.cpus_per_trial, spec.threads_per_trial))
    at_a_time = min(max(1, fit), num_trials, spec.execution.max_concurrent_trials or num_trials)
    of_what = f"{counted(num_trials, 'trial')}, {at_a_time:,} at a time"
    return MeasuredTime(frozen_s + each_s * math.ceil(num_trials / at_a_time), of_what)
