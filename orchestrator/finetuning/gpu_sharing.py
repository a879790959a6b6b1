"""Trials that share a GPU: how many, from the memory that the largest one of a sweep takes in a few steps."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, product

import numpy as np
import torch

from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.micro_batches import is_out_of_memory
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.console import UNDER_WAY, size_text
from orchestrator.base.errors import RunFailedError
from orchestrator.cluster.capacity import cluster_resources
from orchestrator.cluster.gpus import call_on_device
from orchestrator.cluster.torch_devices import choose_device, find_memory, measure_peak
from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.logits import TokenBudget, compute_logits
from orchestrator.finetuning.search_space import build_search, listed_values, value_bounds
from orchestrator.finetuning.training import DivergedError, fine_tune
from orchestrator.finetuning.trial import TrialJob, prepare_trial_features
from orchestrator.specs import RecipeSpec, SweepSpec
from orchestrator.specs.references import RANDOM
from orchestrator.storage import local_copy
from orchestrator.tasks.feature_cache import build_features

logger = logging.getLogger(__name__)
_MAX_TRIALS = 4
"""Trials that may share a GPU: more of them wait for its units, and for the CPUs that feed it."""
_MARGIN = 1.2
"""Memory that is kept for a trial, by what was measured: contexts of the other processes, and fragments."""
_NUM_STEPS = 2
"""Steps that are measured: the optimizer has its own memory from the first one's end on."""


@dataclass(frozen=True)
class TrialMemory:
    """GPU memory that the largest trial of a sweep takes."""

    peak_bytes: int
    """All available bytes where they were too few."""
    available_bytes: int
    """Bytes that no other process holds."""
    total_bytes: int


def most_sharing(spec: SweepSpec, num_finished: int) -> float:
    """The most trials that could share a GPU, by what is left to do and by the cluster's CPUs."""
    have, execution = cluster_resources(), spec.execution
    num_left = build_search(spec).num_points * spec.trials_per_point - num_finished
    at_a_time = min(num_left, execution.max_concurrent_trials or num_left)
    return min(math.ceil(at_a_time / have["GPU"]), have.get("CPU", 0.0) / have["GPU"] / execution.cpus_per_trial)


def share_gpu(spec: SweepSpec, job: TrialJob, most: float) -> tuple[float, float | None]:
    """Measure a trial on a GPU; returns the GPUs of each, and its share of the memory where several share one."""
    logger.info("measuring the memory of a trial on a GPU", extra=UNDER_WAY)
    measure = partial(measure_trial_memory, job, largest_recipes(spec))
    problem = "the memory of a trial was not measured"
    memory = call_on_device(measure, spec.execution.cpus_per_trial, 1.0, problem, "; set execution.gpus_per_trial")
    num_sharing = count_trials(memory, most)
    sharing = f"{num_sharing} trials share a GPU" if num_sharing > 1 else "each trial has a GPU of its own"
    logger.info(f"{sharing}: the largest takes {size_text(memory.peak_bytes)} of {size_text(memory.total_bytes)}")
    share = memory.available_bytes / memory.total_bytes / num_sharing if num_sharing > 1 else None
    return 10_000 // num_sharing / 10_000, share  # Ray counts ten-thousandths: rounded down, all of them fit


def count_trials(memory: TrialMemory, most: float) -> int:
    """Count the trials that share a GPU: each has its memory and a fifth more, and there are no more than `most`.

    >>> count_trials(TrialMemory(peak_bytes=10, available_bytes=30, total_bytes=32), most=8)
    2
    """
    fitting = memory.available_bytes / (_MARGIN * memory.peak_bytes)
    return max(1, int(min(fitting, most, _MAX_TRIALS)))


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
    """Measure the peak memory of the largest recipe on a GPU, in a process that does nothing else.

    Raises: ClusterError, SpecError where the GPU cannot be used, or not in a recipe's precision.
    """
    for recipe in recipes:  # what a GPU cannot do is refused before anything is measured
        choose_device(device, recipe.allow_tf32, recipe.precision)
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
    chosen = choose_device(device, recipe.allow_tf32, recipe.precision)
    task = replace(job.task, train_fraction=recipe.train_fraction)
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
    """End a training that would go on with less at a time: it is to have all of the GPU first."""
    raise torch.OutOfMemoryError(warning)
