"""The loss of labels that a recipe asks for, with weights by name or by how frequent each label is.

Shapes: N examples or tokens, C classes.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.losses import ClassLoss
from orchestrator.finetuning.model_record import label_names
from orchestrator.specs import RecipeSpec


def build_class_loss(model: PretrainedModel, recipe: RecipeSpec, labels: NDArray[Any]) -> ClassLoss:
    """The loss of a recipe, on the model's device; `labels` are those of the training split, (N,) or (N, C)."""
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
    that do not exclude one another, (N, C), these are PyTorch's `pos_weight`: how often absent over how often there.
    """
    if labels.ndim == 1:
        counts = np.bincount(labels[labels >= 0], minlength=num_labels)
        wanted = np.full(num_labels, counts.sum() / np.count_nonzero(counts))
    else:
        counts = labels.sum(axis=0)
        wanted = len(labels) - counts
    return np.where(counts * wanted > 0, wanted / np.maximum(counts, 1), 1.0)
