"""The contract of a head in training: all that the torch half knows of one kind of labeled task.

A head's object has no state. It names the class of the model, turns labels into targets, computes losses from logits,
and makes outputs of a split's logits in the form that the task type of the same name decodes
(`orchestrator.tasks.types`). Everything else asks the object of `orchestrator.finetuning.heads.HEADS`.

Shapes: W windows, T tokens, G groups of windows, C classes, H hidden.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.config_fields import ProblemType
from bert_core.constants import IGNORE_INDEX
from bert_core.losses import ClassLoss
from bert_core.packed_sequences import PackedSequences
from orchestrator.finetuning.model_record import label_names
from orchestrator.specs import RecipeSpec
from orchestrator.specs.task import EmbeddingObjectiveName
from orchestrator.tasks.features import Array, Features, HeadArrays

Windows: TypeAlias = NDArray[np.int64]
"""Numbers of windows within a split's features: (W,)."""


@dataclass(frozen=True)
class Part:
    """Place of a batch in the larger one of a step, which goes through the model in parts."""

    whole: Windows
    """Numbers of the windows of all parts."""
    label_share: float
    """Share of all parts' labels that this one has."""
    logits: Tensor | None = None
    """Logits of all parts, without gradients, for a loss that compares examples with one another."""
    targets: Tensor | None = None
    """Targets of all parts, for such a loss."""


@dataclass(frozen=True)
class Batch:
    """Some windows of a split as the model reads them, and what it should give for them."""

    seqs: PackedSequences
    targets: Tensor
    """Targets from `HeadTraining.targets`, float32 or int64."""
    host_targets: Array
    """The same on the host, where sizes that depend on them are read without waiting for a GPU."""
    features: Features[Any]
    windows: Windows
    group_sizes: Tensor | None = None
    """(G,) windows of each group, where groups of different sizes stay together."""
    tabular_features: Tensor | None = None
    """(W, E) the numbers beside the text, for a head that reads some."""
    states: Tensor | None = None
    """(T, …) what `LayerPooling.select` picks of the encoder's outputs, where the encoder need not be run."""
    part: Part | None = None
    """Place in the batch of a step; None where this is all of it."""


M = TypeVar("M", bound=PretrainedModel)
A = TypeVar("A", bound=HeadArrays)


class HeadTraining(ABC, Generic[M, A]):
    """Contract of a head in training: how its model is built, trained and read."""

    model_type: type[M]
    """Class of the model."""
    problem_type: ClassVar[ProblemType | None] = None
    """Name of the problem in the model's configuration, as transformers has it."""
    gives_token_outputs: ClassVar[bool] = False
    """Whether logits have a row for each token, (T, …), else for each window, (W, …)."""
    gives_vectors: ClassVar[bool] = False
    """Whether logits are vectors of texts, which a student imitates and which are compared as such."""

    # Models

    def with_labels(self, config: BertConfig, labels: Sequence[str]) -> BertConfig:
        """The configuration of a model for these labels."""
        if not labels:
            return replace(config, problem_type=None)
        return config.with_labels(labels, self.problem_type)

    def configure(
        self, model: M, objective: EmbeddingObjectiveName | None, recipe: RecipeSpec, init_folder: str | None
    ) -> None:
        """Set what a new model is trained on beside its configuration; `init_folder` is where its encoder is from."""

    def follow_teacher(
        self, student: M, teacher: M, objective: EmbeddingObjectiveName | None, recipe: RecipeSpec
    ) -> None:
        """Start a student with what decides decoding in its teacher, beside the encoder's layers."""

    def set_objective(self, model: M, objective: EmbeddingObjectiveName | None) -> None:
        """Set what the outputs of a loaded model are compared by. Raises: SpecError when the model cannot."""

    def check_objective(self, folder: Path, objective: EmbeddingObjectiveName | None) -> None:
        """Check that the model of a folder can be asked for an objective, without loading it. Raises: SpecError."""

    def read_options(self, folder: Path, options: Any) -> Any:
        """The options of a model folder made elsewhere, whose files say more than a recipe's defaults."""
        return options

    def recognizes(self, folder: Path, config: BertConfig, architectures: Sequence[str]) -> bool:
        """Whether a model folder made elsewhere, whose configuration names these classes, has this head."""
        return config.family.architecture(self.model_type.__name__) in architectures

    def prepare_loss(self, model: M, features: Features[A], recipe: RecipeSpec) -> None:
        """Set what the loss of a training split's labels depends on beside them."""

    # Batches

    def targets(self, features: Features[A], windows: Windows, tokens: NDArray[np.int64]) -> Array:
        """Targets of some windows, whose tokens stand at `tokens`: the labels of their examples, or of the tokens.

        An unknown label is -100, or NaN among floats.
        """
        arrays: Any = features.head_arrays
        labels: Array = (
            arrays.token_labels[tokens] if self.gives_token_outputs else arrays.labels[features.examples_of(windows)]
        )
        return labels

    def logits(self, model: M, batch: Batch) -> Tensor:
        """The model's logits for a batch, float32."""
        packed_logits: Any = model.packed_logits
        logits: Tensor = packed_logits(batch.seqs, batch.states).float()
        return logits

    @abstractmethod
    def loss(self, model: M, logits: Tensor, batch: Batch) -> Tensor:
        """The mean loss of logits over what the batch has labels for: scalar."""

    def count_labels(self, model: M, targets: Array) -> float:
        """Count what `loss` is the mean over, up to a factor that all batches share."""
        return targets.size if targets.dtype.kind == "f" else int(np.count_nonzero(targets != IGNORE_INDEX))

    def compute_loss(self, model: M, batch: Batch) -> Tensor:
        """The mean loss of a batch; of a part, its share of that: scalar."""
        return self.part_loss(model, self.logits(model, batch), batch)

    def part_loss(self, model: M, logits: Tensor, batch: Batch) -> Tensor:
        """The loss of logits as `loss` gives it; of a part, its share of the step's, to which parts add up: scalar."""
        if batch.part is None:
            return self.loss(model, logits, batch)
        if batch.part.label_share == 0.0:  # its mean would be 0 / 0
            return 0.0 * logits.sum()
        return batch.part.label_share * self.loss(model, logits, batch)

    def compares_examples(self, model: M) -> bool:
        """Whether a loss of labels compares a batch's examples with one another: it is no sum over them."""
        return False

    @abstractmethod
    def soft_loss(self, logits: Tensor, teacher_logits: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Mean distance of a student's logits from its teacher's, which have the same shape: scalar."""

    def num_imitated(self, features: Features[A], windows: Windows) -> int:
        """Count what `soft_loss` is the mean over, up to a factor that all batches share."""
        return len(windows)

    # A whole split

    def outputs(self, model: M, features: Features[A], logits: NDArray[np.float32]) -> NDArray[Any]:
        """A split's logits, (W, …) or (T, …), in the form that the task type decodes."""
        return logits

    def tokens_read(self, config: BertConfig, features: Features[A]) -> NDArray[np.int64] | None:
        """The tokens that the head reads, ascending, each window's first among them; None for all.

        Of a frozen encoder's outputs only theirs are kept. A causal encoder pools the last token, so it keeps all.
        """
        return features.cu_seqlens[:-1] if config.pools_one_token and not config.causal_attention else None


def build_class_loss(model: PretrainedModel, recipe: RecipeSpec, labels: NDArray[Any]) -> ClassLoss:
    """Loss of labels by a recipe, on the model's device, with weights by name or by how frequent each label is.

    Args:
        labels: of the training split's N examples or tokens, (N,) or (N, C).
    """
    chosen, weights = recipe.class_weights, None
    if isinstance(chosen, dict):
        weights = np.array([chosen.get(label, 1.0) for label in label_names(model.config)], np.float32)
    elif chosen == "balanced":
        weights = _balance(labels, model.config.num_labels).astype(np.float32)
    on_device = None if weights is None else torch.from_numpy(weights).to(next(model.parameters()).device)
    gamma = recipe.focal_gamma if recipe.loss == "focal" else None
    return ClassLoss(on_device, recipe.label_smoothing, gamma, weights)


def _balance(labels: NDArray[Any], num_labels: int) -> NDArray[np.float64]:
    """Weights by which all labels count alike, 1 for a label that does not occur: (C,).

    Of classes, (N,) with -100 left out, these are scikit-learn's "balanced": the mean count over the own one. Of labels
    that do not exclude one another, (N, C) with rows of -100 left out, these are PyTorch's `pos_weight`: how often
    absent over how often there.
    """
    if labels.ndim == 1:
        counts = np.bincount(labels[labels >= 0], minlength=num_labels)
        wanted = np.full(num_labels, counts.sum() / np.count_nonzero(counts))
    else:
        labels = labels[labels[:, 0] >= 0]
        counts = labels.sum(axis=0)
        wanted = len(labels) - counts
    return np.where(counts * wanted > 0, wanted / np.maximum(counts, 1), 1.0)
