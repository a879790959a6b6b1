"""Data and models that all trials of a sweep share: folders by name, and the task's splits, tokenized once."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from bert_core.config import BertConfig
from bert_core.text.tokenization import Tokenizer
from orchestrator.finetuning.building import check_fit
from orchestrator.finetuning.search_space import listed_values
from orchestrator.finetuning.trial_job import TrialJob, prepare_trial_features
from orchestrator.progress import UNDER_WAY
from orchestrator.results import DatasetResult, Split
from orchestrator.specs import RecipeSpec, SweepSpec
from orchestrator.specs.references import RANDOM
from orchestrator.storage import local_copy
from orchestrator.storage.uris import absolute
from orchestrator.tasks import Features, Task, dataset_result, majority_baseline

logger = logging.getLogger(__name__)


def prepare_job(
    spec: SweepSpec,
    task: Task,
    run_folder: str,
    mark: str,
    cache: str,
    resolve_name: Callable[[str, str], str],
) -> tuple[TrialJob, DatasetResult]:
    """Find the models, tokenize the data; returns what all trials are given, and what is recorded of the data."""
    folders = _resolve_folders(spec, resolve_name)
    dataset = _prepare_data(spec, task, folders, cache)
    job = TrialJob(
        task=task,
        baseline=majority_baseline(task, "validation"),
        folders=folders,
        run_folder=run_folder,
        mark=mark,
        cache=cache,
        num_threads=spec.threads_per_trial,
        use_gpu=spec.execution.gpus_per_trial != 0,
        checkpoint_every_s=60 * spec.execution.checkpoint_every_minutes,
    )
    return job, dataset


def _resolve_folders(spec: SweepSpec, resolve_name: Callable[[str, str], str]) -> dict[str, str]:
    """The folder of each model and tokenizer that the recipes name; a sweep with random weights names a tokenizer."""
    models = [str(name) for name in listed_values(spec, "init_from")]
    tokenizers = list(listed_values(spec, "tokenizer")) if RANDOM in models else []
    folders = {name: resolve_name("init_from", name) for name in models if name != RANDOM}
    for name in tokenizers:
        folders.setdefault(str(name), resolve_name("tokenizer", str(name)))
    return {name: absolute(folder) for name, folder in folders.items()}


def _prepare_data(spec: SweepSpec, task: Task, folders: Mapping[str, str], cache: str) -> DatasetResult:
    """Tokenize both splits for every tokenizer and length that the sweep lists, and see that models fit them.

    What a range adds is tokenized by the first trial that needs it.
    """
    logger.info(f"task {task.id}: reading and tokenizing", extra=UNDER_WAY)
    if "test" in task.files:
        task.read("test")  # what is wrong with it shows now, not after the trials
    features: dict[Split, Features[Any]] = {}
    for recipe in _listed_recipes(spec, task.type.options_type.window_fields()):
        is_random = recipe.init_from == RANDOM
        folder = local_copy(folders[str(recipe.tokenizer) if is_random else recipe.init_from])
        config = None if is_random else BertConfig.from_pretrained(folder)
        tokenizer = Tokenizer.load(folder)
        if config is not None:
            check_fit(config, recipe, tokenizer)
        for split in ("train", "validation"):
            made = prepare_trial_features(task, split, recipe, tokenizer, cache)
            features.setdefault(split, made)
    result = dataset_result(task, features)
    counts = result.counts
    logger.info(
        f"task {task.id}: {counts['num_train_examples']} training and {counts['num_validation_examples']} "
        f"validation examples{', as tokenized before' if result.reused else ''}"
    )
    logger.info("starting the trials", extra=UNDER_WAY)
    return result


def _listed_recipes(spec: SweepSpec, window_fields: Sequence[str]) -> Iterator[RecipeSpec]:
    """One recipe for each combination of what decides the features; a range stands as its lower end."""
    names = ("init_from", "tokenizer", *window_fields)
    values = [listed_values(spec, name) or (spec.axes[name].value_at(0.0),) for name in names]
    for combination in product(*values):
        yield spec.recipe.model_copy(update=dict(zip(names, combination, strict=True)))
