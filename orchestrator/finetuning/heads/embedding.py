"""Sentence embeddings in training: vectors of texts (W, H), compared in pairs by the task's objective."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bert_core.checkpoints.sentence_transformers import (
    MODULES_FILE,
    SentenceEmbeddingConfig,
    read_sentence_embedding,
)
from bert_core.config import BertConfig
from bert_core.constants import IGNORE_INDEX
from bert_core.device_copies import copy_together
from bert_core.distillation import vector_loss
from orchestrator.finetuning.dual_encoder import CLASSIFIER_FILE, DualEncoder, check_classifier
from orchestrator.finetuning.embedding_objectives import EMBEDDING_LOSSES
from orchestrator.finetuning.heads.base import Batch, HeadTraining
from orchestrator.specs import RecipeSpec
from orchestrator.specs.task import EmbeddingObjectiveName
from orchestrator.tasks import Features
from orchestrator.tasks.features import Array
from orchestrator.tasks.types.embedding import EmbeddingOptions, PairArrays


class EmbeddingHead(HeadTraining[DualEncoder, PairArrays]):
    """A vector for each text."""

    model_type = DualEncoder
    gives_vectors = True

    def configure(
        self, model: DualEncoder, objective: EmbeddingObjectiveName | None, recipe: RecipeSpec, init_folder: str | None
    ) -> None:
        """Pool tokens as the recipe says, else as the folder does, and compare by the objective."""
        assert objective is not None, "a task for embeddings has one"
        pooling = SentenceEmbeddingConfig() if init_folder is None else read_sentence_embedding(Path(init_folder))
        model.configure(objective, pooling, recipe)

    def follow_teacher(
        self, student: DualEncoder, teacher: DualEncoder, objective: EmbeddingObjectiveName | None, recipe: RecipeSpec
    ) -> None:
        """Pool tokens as the teacher does unless the recipe says otherwise, and compare pairs by its classifier."""
        assert objective is not None, "a task for embeddings has one"
        student.configure(objective, teacher.embedding, recipe)
        if student.classifier is not None and teacher.classifier is not None:
            student.classifier.load_state_dict(teacher.classifier.state_dict())

    def set_objective(self, model: DualEncoder, objective: EmbeddingObjectiveName | None) -> None:
        """Compare pairs by an objective; by the model's own when None."""
        if objective is not None:
            model.set_objective(objective)

    def check_objective(self, folder: Path, objective: EmbeddingObjectiveName | None) -> None:
        """Check that classes are asked of a model with a classifier of pairs. Raises: SpecError."""
        if objective is not None:
            check_classifier(objective, (folder / CLASSIFIER_FILE).exists())

    def read_options(self, folder: Path, options: EmbeddingOptions) -> EmbeddingOptions:
        """The options with the prompts that the folder names."""
        own = read_sentence_embedding(folder)
        return replace(options, query_prompt=own.query_prompt, document_prompt=own.document_prompt)

    def recognizes(self, folder: Path, config: BertConfig, architectures: Sequence[str]) -> bool:
        """A folder of sentence-transformers, whatever its encoder's class."""
        return super().recognizes(folder, config, architectures) or (folder / MODULES_FILE).exists()

    def targets(self, features: Features[PairArrays], windows: NDArray[np.int64], tokens: NDArray[np.int64]) -> Array:
        """A label for each pair; or the numbers of its texts, (B, …), -100 where others have more negatives."""
        labels, numbers = features.head_arrays.labels, features.head_arrays.text_numbers
        if numbers is None:
            assert labels is not None, "an objective has one of the two"
            return labels[features.examples_of(windows)]
        begins = features.begins_group(windows)
        begins[0] = True  # texts that are only embedded need not be whole groups
        sizes = np.diff(np.flatnonzero(begins), append=len(windows))
        rows = np.full((len(sizes), sizes.max()), IGNORE_INDEX, np.int32)
        rows[np.arange(sizes.max()) < sizes[:, None]] = numbers[windows]
        return rows

    def logits(self, model: DualEncoder, batch: Batch) -> Tensor:
        """Vectors of texts, (W, H)."""
        return model.packed_logits(batch.seqs, batch.states).float()

    def loss(self, model: DualEncoder, logits: Tensor, batch: Batch) -> Tensor:
        """Compute the objective's mean loss over the batch's pairs: scalar."""
        return model.compute_loss(logits, batch.targets)

    def part_loss(self, model: DualEncoder, logits: Tensor, batch: Batch) -> Tensor:
        """The loss as of any head; where pairs are compared with one another, with the vectors of all parts.

        Only this part's vectors have gradients, as the others have in their own parts (Gao et al. 2021, "Scaling Deep
        Contrastive Learning Batch Size under Memory Limited Setup", section 3, where gradients of vectors are kept).
        """
        part = batch.part
        if part is None or part.logits is None or part.is_label_free:
            return super().part_loss(model, logits, batch)
        assert part.targets is not None, "they come with the logits"
        own = torch.from_numpy(np.flatnonzero(np.isin(part.whole, batch.windows)))
        places = copy_together({"places": own}, logits.device)["places"]
        value = model.compute_loss(part.logits.index_copy(0, places, logits), part.targets)
        # The whole loss for the gradient, and a share of it to add up.
        return value - (1.0 - part.label_share) * value.detach()

    def compares_examples(self, model: DualEncoder) -> bool:
        """Whether the objective compares pairs with one another."""
        return EMBEDDING_LOSSES[model.objective].compares_pairs

    def soft_loss(
        self, logits: Tensor, teacher_logits: Tensor, features: Features[PairArrays], batch: Batch, temperature: float
    ) -> Tensor:
        """Squared distance of the two vectors of a text, mean over texts."""
        return vector_loss(logits, teacher_logits)

    def outputs(self, model: DualEncoder, features: Features[PairArrays], logits: NDArray[np.float32]) -> NDArray[Any]:
        """Cosines, class logits or the nearest pairs, by the model's objective; negatives are learned from alone."""
        first = features.group_starts[:-1]
        return model.score_pairs(logits[first], logits[first + 1])
