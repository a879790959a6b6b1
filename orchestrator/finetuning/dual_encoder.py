"""Sentence embeddings in training: an encoder for both texts of a pair, and what compares their vectors.

Shapes: B pairs of a batch, W texts of them, N pairs of a split, H hidden.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from bert_core.checkpoints.manifest import atomic_write
from bert_core.checkpoints.sentence_transformers import SentenceEmbeddingConfig
from bert_core.checkpoints.tensor_files import save_tensors
from bert_core.config import BertConfig
from bert_core.errors import CheckpointError
from bert_core.heads import BertForSentenceEmbedding
from bert_core.losses import PairClassifier
from bert_core.packed_sequences import PackedSequences
from orchestrator.errors import SpecError
from orchestrator.finetuning.embedding_objectives import EMBEDDING_LOSSES
from orchestrator.finetuning.recipe_checks import check_prompts
from orchestrator.specs import RecipeSpec
from orchestrator.specs.task import EmbeddingObjectiveName

CLASSIFIER_FILE = "pair_classifier.safetensors"


class DualEncoder(BertForSentenceEmbedding):
    """Reads each text by itself; the texts of a pair follow one another.

    Its folder is one of sentence-transformers; the classifier of pairs, where there is one, lies in a file beside.
    """

    def __init__(
        self, config: BertConfig, seed: int | None = 0, embedding: SentenceEmbeddingConfig | None = None
    ) -> None:
        super().__init__(config, seed, embedding)
        self.objective: EmbeddingObjectiveName = "cosine"
        self.temperature = RecipeSpec().temperature
        self.matryoshka_dims: tuple[int, ...] = ()
        self.classifier: PairClassifier | None = None

    def configure(
        self, objective: EmbeddingObjectiveName, embedding: SentenceEmbeddingConfig, recipe: RecipeSpec
    ) -> None:
        """Set what is trained on, and how tokens are pooled where the recipe says nothing else.

        Raises: SpecError for prompts of the embedding that the recipe does not mention.
        """
        check_prompts(recipe, embedding)
        self.embedding = replace(
            embedding,
            pooling=recipe.pooling or embedding.pooling,
            max_seq_length=recipe.max_seq_length,
            query_prompt=recipe.query_prompt or "",
            document_prompt=recipe.document_prompt or "",
        )
        self.temperature = recipe.temperature
        self.matryoshka_dims = recipe.matryoshka_dims
        if EMBEDDING_LOSSES[objective].needs_classifier:
            hidden_size, num_labels = self.config.hidden_size, self.config.num_labels
            self.classifier = PairClassifier(hidden_size, num_labels, recipe.seed, self.config.initializer_range)
        self.set_objective(objective)

    def set_objective(self, objective: EmbeddingObjectiveName) -> None:
        """Set what the vectors are compared by. Raises: SpecError when classes are asked of a model without any."""
        check_classifier(objective, self.classifier is not None)
        self.objective = objective

    def packed_logits(self, seqs: PackedSequences, hidden: Tensor | None = None) -> Tensor:
        """Embed the texts of each pair, pair by pair, (W, H); `hidden` (T, H) is the encoder's output, if known."""
        return self.packed_embeddings(seqs, hidden)

    def compute_loss(self, embeddings: Tensor, targets: Tensor) -> Tensor:
        """The objective's loss, or the sum of those of some first numbers of the vectors: (W, H), (B, …) → scalar.

        The numbers that are left make unit vectors, as cosines do anyway (Kusupati et al. 2022, section 3).
        """
        loss = EMBEDDING_LOSSES[self.objective].loss
        dims = self.matryoshka_dims or (embeddings.shape[-1],)
        first, *others = (loss(self, embeddings[:, :dim], targets) for dim in dims)
        return sum(others, first)

    @torch.inference_mode()
    def score_pairs(self, first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[Any]:
        """Predict a split's pairs from vectors (N, H), in the form that the objective's judge decodes: (N, …)."""
        device = next(self.parameters()).device
        vectors = (torch.from_numpy(some).to(device) for some in (first, second))
        return EMBEDDING_LOSSES[self.objective].outputs(self, *vectors)

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
            atomic_write(Path(folder, CLASSIFIER_FILE), lambda temporary: save_tensors(weights, temporary))
        super().save_pretrained(folder)


def check_classifier(objective: EmbeddingObjectiveName, has_classifier: bool) -> None:
    """Check that classes are asked of a model with a classifier of pairs. Raises: SpecError."""
    if EMBEDDING_LOSSES[objective].needs_classifier and not has_classifier:
        raise SpecError(f"this model has no classifier of pairs; evaluate one trained with objective {objective}")
