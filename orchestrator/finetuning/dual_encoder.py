"""Sentence embeddings in training: an encoder for both texts of a pair, and what compares their vectors.

Shapes: B pairs, N pairs of a split, H hidden, C classes, K candidates.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bert_core.checkpoints.atomic_files import atomic_write
from bert_core.checkpoints.sentence_transformers import SentenceEmbeddingConfig
from bert_core.config import BertConfig
from bert_core.embedding_losses import (
    PairClassifier,
    cosine_regression_loss,
    find_positives,
    in_batch_negatives_loss,
)
from bert_core.errors import CheckpointError
from bert_core.heads import BertForSentenceEmbedding
from bert_core.packed_sequences import PackedSequences
from bert_core.vector_index import build_index
from orchestrator.errors import SpecError
from orchestrator.specs import RecipeSpec
from orchestrator.specs.task import EmbeddingObjectiveName

CLASSIFIER_FILE = "pair_classifier.safetensors"

_NUM_CANDIDATES = 100


class DualEncoder(BertForSentenceEmbedding):
    """Reads each text by itself; the texts of pair i are the sequences 2i and 2i + 1.

    Its folder is one of sentence-transformers; the classifier of pairs, where there is one, lies in a file beside.
    """

    def __init__(
        self, config: BertConfig, seed: int | None = 0, embedding: SentenceEmbeddingConfig | None = None
    ) -> None:
        super().__init__(config, seed, embedding)
        self.objective: EmbeddingObjectiveName = "cosine"
        self.temperature = RecipeSpec().temperature
        self.classifier: PairClassifier | None = None

    def configure(
        self, objective: EmbeddingObjectiveName, embedding: SentenceEmbeddingConfig, recipe: RecipeSpec
    ) -> None:
        """Set what is trained on, and how tokens are pooled where the recipe says nothing else."""
        self.embedding = replace(
            embedding, pooling=recipe.pooling or embedding.pooling, max_seq_length=recipe.max_seq_length
        )
        self.temperature = recipe.temperature
        if objective == "classification":
            hidden_size, num_labels = self.config.hidden_size, self.config.num_labels
            self.classifier = PairClassifier(hidden_size, num_labels, recipe.seed, self.config.initializer_range)
        self.set_objective(objective)

    def set_objective(self, objective: EmbeddingObjectiveName) -> None:
        """Set what the vectors are compared by. Raises: SpecError when classes are asked of a model without any."""
        check_classifier(objective, self.classifier is not None)
        self.objective = objective

    def packed_logits(self, seqs: PackedSequences) -> Tensor:
        """Embed the two texts of each pair, first and second alternating: (2B, H)."""
        return self.packed_embeddings(seqs)

    def compute_loss(self, embeddings: Tensor, targets: Tensor) -> Tensor:
        """The objective's loss: (2B, H), (B,) → scalar; the targets of partners are their texts' numbers, (B, 2)."""
        first, second = embeddings[0::2], embeddings[1::2]
        if self.objective == "cosine":
            return cosine_regression_loss(first, second, targets)
        if self.objective == "in_batch_negatives":
            return in_batch_negatives_loss(
                first, second, self.temperature, is_positive=find_positives(*targets.unbind(1))
            )
        assert self.classifier is not None, "set_objective has seen to it"
        return self.classifier.loss(first, second, targets)

    @torch.inference_mode()
    def score_pairs(self, embeddings: NDArray[np.float32]) -> NDArray[Any]:
        """Predict a split's pairs from vectors (2N, H): cosines (N,), logits (N, C), or nearest pairs (N, K).

        The K nearest pairs of a first text are those whose second texts lie nearest to it, as row numbers.
        """
        first, second = embeddings[0::2], embeddings[1::2]
        if self.objective == "in_batch_negatives":
            index = build_index([str(row) for row in range(len(second))], second)
            return np.array([[int(hit.id) for hit in hits] for hits in index.search(first, _NUM_CANDIDATES)])
        device = next(self.parameters()).device
        u, v = torch.from_numpy(first).to(device), torch.from_numpy(second).to(device)
        if self.objective == "cosine":
            return F.cosine_similarity(u, v, dim=-1).cpu().numpy()
        assert self.classifier is not None, "set_objective has seen to it"
        return self.classifier(u, v).cpu().numpy()  # type: ignore[no-any-return]

    @classmethod
    def from_pretrained(cls, folder: str | Path, *arguments: Any, **options: Any) -> Self:
        """The model of an encoder's or a sentence-transformers folder. Raises: CheckpointError."""
        model = super().from_pretrained(folder, *arguments, **options)
        file = Path(folder, CLASSIFIER_FILE)
        if file.exists():
            model.classifier = PairClassifier(model.config.hidden_size, model.config.num_labels)
            try:
                model.classifier.load_state_dict(load_file(file))
            except (SafetensorError, RuntimeError) as error:
                raise CheckpointError(f"{file} is cut short or altered ({error}); train the model again") from None
        return model

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a folder that sentence-transformers loads."""
        if self.classifier is not None:
            weights = {"weight": self.classifier.weight.detach().contiguous()}
            atomic_write(Path(folder, CLASSIFIER_FILE), lambda temporary: save_file(weights, temporary))
        super().save_pretrained(folder)


def check_classifier(objective: EmbeddingObjectiveName, has_classifier: bool) -> None:
    """Check that classes are asked of a model with a classifier of pairs. Raises: SpecError."""
    if objective == "classification" and not has_classifier:
        raise SpecError("this model has no classifier of pairs; evaluate one trained with objective classification")
