"""Trials that share a card: how many, from the memory that the largest one of a sweep takes in a few steps there."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, product

import numpy as np
import torch

from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.micro_batches import is_out_of_memory
from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import RunFailedError
from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.logits import TokenBudget, compute_logits
from orchestrator.finetuning.search_space import listed_values, value_bounds
from orchestrator.finetuning.training import DivergedError, fine_tune
from orchestrator.finetuning.trial import WITHOUT_CARD, TrialJob, prepare_trial_features
from orchestrator.models.device import choose_device
from orchestrator.specs import RecipeSpec, SweepSpec
from orchestrator.specs.references import RANDOM
from orchestrator.storage import local_copy
from orchestrator.tasks import build_features
from orchestrator.training.cards import find_memory, gib_text, measure_peak

MAX_TRIALS = 4
"""Trials that may share a card: more of them wait for its units, and for the CPUs that feed it."""
_MARGIN = 1.2
"""Memory that is kept for a trial, by what was measured: contexts of the other processes, and fragments."""
_NUM_STEPS = 2
"""Steps that are measured: the optimizer has its own memory from the first one's end on."""


@dataclass(frozen=True)
class TrialMemory:
    """Memory of a card that the largest trial of a sweep takes."""

    peak_bytes: int
    """Bytes that it took at most; all of them where they were too few."""
    available_bytes: int
    """Bytes of the card that trials may take: what others do not hold."""
    total_bytes: int


def count_trials(memory: TrialMemory, most: float) -> int:
    """Count the trials that share a card: each has its memory and a fifth more, and there are no more than `most`.

    >>> count_trials(TrialMemory(peak_bytes=10, available_bytes=30, total_bytes=32), most=8)
    2
    """
    fitting = memory.available_bytes / (_MARGIN * memory.peak_bytes)
    return max(1, int(min(fitting, most, MAX_TRIALS)))


def share_of_card(num_trials: int) -> float:
    """Return a trial's GPUs, in Ray's units of a ten-thousandth, rounded down so that all of them fit.

    >>> [share_of_card(number) for number in (1, 2, 3, 4)]
    [1.0, 0.5, 0.3333, 0.25]
    """
    return 10_000 // num_trials / 10_000


def share_line(num_trials: int, memory: TrialMemory) -> str:
    """Return the line for a person."""
    sharing = f"{num_trials} trials share a GPU" if num_trials > 1 else "each trial has a GPU of its own"
    return f"{sharing}: the largest takes {gib_text(memory.peak_bytes)} of {gib_text(memory.total_bytes)}"


def largest_recipes(spec: SweepSpec) -> list[RecipeSpec]:
    """Make the recipes that may take most memory: each model and precision, with the largest batches and lengths."""
    names = ("init_from", "tokenizer", "family", "size", "precision", "long_documents")
    largest = {name: int(value_bounds(spec, name)[1]) for name in ("batch_size", "max_seq_length")}
    micro_batches = listed_values(spec, "micro_batch_size")
    size = None if None in micro_batches else int(value_bounds(spec, "micro_batch_size")[1])
    values = product(*(listed_values(spec, name) for name in names))
    return [
        spec.recipe.model_copy(update=dict(zip(names, some, strict=True)) | largest | {"micro_batch_size": size})
        for some in values
    ]


def measure_trial_memory(job: TrialJob, recipes: Sequence[RecipeSpec], device: str) -> TrialMemory:
    """Measure on a card what the recipe that takes the most memory takes of it, in a process that does nothing else.

    Raises: ClusterError, SpecError where the card cannot be used, or not in a recipe's precision.
    """
    for recipe in recipes:  # what a card cannot do is refused before anything is measured
        choose_device(device, recipe.allow_tf32, recipe.precision, or_else=WITHOUT_CARD)
    available, total = find_memory()
    try:
        peak = max(measure_peak(partial(_train_a_little, job, recipe, device)) for recipe in recipes)
    except Exception as error:
        if isinstance(error, DivergedError) or not (isinstance(error, RunFailedError) or is_out_of_memory(error)):
            raise
        return TrialMemory(available, available, total)  # the trials themselves say so, those that it happens to
    return TrialMemory(peak, available, total)


def _train_a_little(job: TrialJob, recipe: RecipeSpec, device: str) -> None:
    """Train and score on the training split's examples with the longest windows."""
    chosen = choose_device(device, recipe.allow_tf32, recipe.precision, or_else=WITHOUT_CARD)
    task = job.task.with_train_fraction(recipe.train_fraction)
    tokenizer = Tokenizer.load(local_copy(job.tokenizer_folder(recipe), skip=(WEIGHTS_FILE,)))
    train = prepare_trial_features(task, "train", recipe, tokenizer, job.cache)
    by_length = train.examples_of(train.windows_of(np.argsort(-train.group_lengths, kind="stable")))
    longest = list(dict.fromkeys(by_length.tolist()))[: _NUM_STEPS * recipe.batch_size]
    examples = task.examples("train")
    few = [examples[number] for number in longest]
    features = build_features(task, few, tokenizer, task.type.options_type.of_recipe(recipe))
    init_folder = None if recipe.init_from == RANDOM else str(local_copy(job.folders[recipe.init_from]))
    model = build_model(task, recipe, init_folder, tokenizer).to(chosen)
    # An evaluation after each step, each better than the one before: the last step is beside weights that are kept.
    brief = recipe.model_copy(
        update={"epochs": 1.0, "evaluations_per_epoch": _NUM_STEPS, "patience": None, "unfreeze_every_epochs": None}
    )
    scores = count()

    def score() -> tuple[float, None]:
        compute_logits(model, features, recipe.precision, budget=TokenBudget(warn=_end))
        return float(next(scores)), None

    fine_tune(model, features, brief, score, lambda evaluation, best_score: None, warn=_end)


def _end(warning: str) -> None:
    """End a training that would go on with less at a time: it is to have all of the card first."""
    raise torch.OutOfMemoryError(warning)
