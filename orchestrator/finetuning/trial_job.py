"""Job of a sweep's trials: the value that each of them gets, and what the trials of one process share.

A trial's process runs many trials: their task, tokenizers, features and model folders are read once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.text.tokenization import Tokenizer
from orchestrator.results import Split
from orchestrator.specs import RecipeSpec
from orchestrator.specs.references import RANDOM
from orchestrator.storage import join, local_copy
from orchestrator.tasks import Features, Task, majority_baseline, prepare_features

WITHOUT_CARD = "set execution.gpus_per_trial 0"
"""Remedy for a sweep whose card cannot be used, beside mending the card."""
Cached = TypeVar("Cached")
_CACHE: dict[str, dict[tuple[object, ...], Any]] = {}
"""Cache of what the trials of a process share, by job and key."""


@dataclass(frozen=True)
class TrialJob:
    """Value that every trial of a sweep gets; it pickles small: the task travels without its examples."""

    task: Task
    baseline: Mapping[str, float]
    """Scores of the majority baseline on the validation split."""
    folders: Mapping[str, str]
    """Folder of each model and tokenizer, by the name that recipes use."""
    run_folder: str
    mark: str
    """Mark that the driver has left on the storage, which a trial's process must see (`training.attempts`)"""
    cache: str
    """Folder of tokenized features on the storage."""
    num_threads: int
    use_gpu: bool
    attempt: int = 1
    """Number of the sweep's attempt; a later one's checkpoints stop a trial."""
    card_share: float | None = None
    """Share of a card's memory that a trial may take, where several share one; a trial that wants more goes on with
    smaller micro-batches or fails, and not its neighbors."""
    checkpoint_every_s: float = 0.0
    """Training time, at least, between two checkpoints of a trial."""
    id: str = field(default_factory=lambda: uuid4().hex)
    """Tells jobs apart in the cache of a process"""

    def tokenizer_folder(self, recipe: RecipeSpec) -> str:
        """Folder of the recipe's tokenizer: the start model's, or the named one for random weights."""
        name = recipe.tokenizer if recipe.init_from == RANDOM else recipe.init_from
        assert name is not None, "the sweep refuses random weights without a tokenizer"
        return self.folders[name]

    def shared_task(self, fold: int | None) -> Task:
        """The task of a fold, which keeps the examples that a trial of this process has read."""
        if fold is None:
            return self._cached(("task",), lambda: self.task)
        whole = self.shared_task(None)
        whole.read("train")  # once for all folds
        return self._cached(("task", fold), lambda: whole.with_fold(fold))

    def shared_baseline(self, fold: int | None) -> Mapping[str, float]:
        """Scores of the majority baseline on the validation split of a fold."""
        if fold is None:
            return self.baseline
        return self._cached(("baseline", fold), lambda: majority_baseline(self.shared_task(fold), "validation"))

    def shared_tokenizer(self, recipe: RecipeSpec) -> Tokenizer:
        """The recipe's tokenizer."""
        folder = self.tokenizer_folder(recipe)
        return self._cached(("tokenizer", folder), lambda: Tokenizer.load(local_copy(folder, skip=(WEIGHTS_FILE,))))

    def shared_features(
        self, split: Split, recipe: RecipeSpec, tokenizer: Tokenizer, fold: int | None
    ) -> Features[Any]:
        """Features of a split, as the recipe wants them."""
        options = self.task.type.options_type.of_recipe(recipe)
        return self._cached(
            ("features", split, fold, tokenizer.fingerprint, recipe.train_fraction, *options.window_values().values()),
            lambda: prepare_trial_features(self.shared_task(fold), split, recipe, tokenizer, self.cache),
        )

    def local_folder(self, name: str) -> Path:
        """Folder on this machine of a model that recipes name."""
        folder = self.folders[name]
        return self._cached(("folder", folder), lambda: local_copy(folder))

    def _cached(self, key: tuple[object, ...], make: Callable[[], Cached]) -> Cached:
        """Value of a key in this job's cache, from `make` the first time; the caches of other jobs are dropped."""
        if self.id not in _CACHE:
            _CACHE.clear()
        cache = _CACHE.setdefault(self.id, {})
        if key not in cache:
            cache[key] = make()
        value: Cached = cache[key]
        return value


def trial_folder(run_folder: str, key: str) -> str:
    """Folder of a trial's files."""
    return join(run_folder, f"trials/{key}")


def prepare_trial_features(
    task: Task, split: Split, recipe: RecipeSpec, tokenizer: Tokenizer, cache: str
) -> Features[Any]:
    """A split's features as a recipe wants them, from the cache where they are there."""
    task = task.with_train_fraction(recipe.train_fraction) if split == "train" else task
    return prepare_features(task, split, tokenizer, task.type.options_type.of_recipe(recipe), cache)
