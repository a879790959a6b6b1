"""Sentence embeddings in training: an encoder for both texts of a pair, the objectives that compare their vectors, and
the head.

An objective is an object without state; what it learns or is told lies in the model. Its other half, torch-free, is
the object of the same name in `orchestrator.tasks.types.embedding`.

Shapes: B pairs of a batch, W texts of them, N pairs of a split, H hidden, C classes, K candidates.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from bert_core.checkpoints.manifest import atomic_write
from bert_core.checkpoints.sentence_transformers import (
    MODULES_FILE,
    SentenceEmbeddingConfig,
    read_sentence_embedding,
)
from bert_core.checkpoints.tensor_files import save_tensors
from bert_core.config import BertConfig
from bert_core.constants import IGNORE_INDEX
from bert_core.device_copies import copy_together
from bert_core.distillation import vector_loss
from bert_core.errors import CheckpointError
from bert_core.heads.sentence_embedding import BertForSentenceEmbedding, load_dense
from bert_core.losses import PairClassifier, cosine_regression_loss, find_positives, in_batch_negatives_loss
from bert_core.packed_sequences import PackedSequences
from bert_core.vector_index import build_index
from orchestrator.base.errors import SpecError
from orchestrator.finetuning.heads.base import Batch, HeadTraining, Windows
from orchestrator.finetuning.search_space import check_prompts
from orchestrator.specs import RecipeSpec
from orchestrator.specs.task import EmbeddingObjectiveName
from orchestrator.tasks.features import Array, Features
from orchestrator.tasks.types.embedding import EmbeddingOptions, PairArrays

CLASSIFIER_FILE = "pair_classifier.safetensors"
_NUM_CANDIDATES = 100


class EmbeddingLoss(ABC):
    """Objective that the vectors of pairs are trained on and compared by."""

    needs_classifier: ClassVar[bool] = False
    """Whether the model needs a classifier of pairs."""
    compares_pairs: ClassVar[bool] = False
    """Whether the loss compares a batch's pairs with one another: it is no mean over them then. Such an objective
    learns nothing of its own, as it is computed once for each part of a batch."""

    @abstractmethod
    def loss(self, model: "DualEncoder", vectors: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of pairs, from the vectors of their texts and the head's targets: (W, H), (B, …) → scalar."""

    @abstractmethod
    def outputs(self, model: "DualEncoder", first: Tensor, second: Tensor) -> NDArray[Any]:
        """Predict a split's pairs, in the form that the task type decodes: (N, H), (N, H) → (N, …)."""


class PairClassificationLoss(EmbeddingLoss):
    """A classifier on both vectors names the pair's class."""

    needs_classifier = True

    def loss(self, model: "DualEncoder", vectors: Tensor, targets: Tensor) -> Tensor:
        return _classifier(model).loss(vectors[0::2], vectors[1::2], targets)

    def outputs(self, model: "DualEncoder", first: Tensor, second: Tensor) -> NDArray[Any]:
        logits: NDArray[Any] = _classifier(model)(first, second).cpu().numpy()  # (N, C)
        return logits


def _classifier(model: "DualEncoder") -> PairClassifier:
    assert model.classifier is not None, "set_objective has seen to it"
    return model.classifier


class CosineLoss(EmbeddingLoss):
    """The cosine is the score."""

    def loss(self, model: "DualEncoder", vectors: Tensor, targets: Tensor) -> Tensor:
        return cosine_regression_loss(vectors[0::2], vectors[1::2], targets)

    def outputs(self, model: "DualEncoder", first: Tensor, second: Tensor) -> NDArray[Any]:
        cosines: NDArray[Any] = F.cosine_similarity(first, second, dim=-1).cpu().numpy()  # (N,)
        return cosines


class InBatchNegativesLoss(EmbeddingLoss):
    """Each first text finds its second one among those of all pairs, and among all negatives."""

    compares_pairs = True

    def loss(self, model: "DualEncoder", vectors: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy over first texts; targets are numbers, the same for equal texts: (B, 2 + negatives).

        A pair with fewer negatives than another has none of the vectors where its number is below 0.
        """
        if len(vectors) < targets.numel():
            places = (targets >= 0).flatten().cumsum(0) - 1  # known without waiting for a GPU
            vectors = vectors[places]
        first, *others = vectors.view(*targets.shape, -1).unbind(1)
        numbers = targets[:, 1:].T.flatten()
        is_left_out = find_positives(targets[:, 0], numbers) | (numbers < 0)
        return in_batch_negatives_loss(first, torch.cat(others), model.temperature, is_positive=is_left_out)

    def outputs(self, model: "DualEncoder", first: Tensor, second: Tensor) -> NDArray[Any]:
        """The pairs whose second texts are nearest to each first text, nearest first: (N, K)."""
        index = build_index([str(row) for row in range(len(second))], second.cpu().numpy())
        return np.array([[int(hit.id) for hit in hits] for hits in index.search(first.cpu().numpy(), _NUM_CANDIDATES)])


EMBEDDING_LOSSES: Mapping[EmbeddingObjectiveName, EmbeddingLoss] = MappingProxyType(
    {
        "cosine": CosineLoss(),
        "in_batch_negatives": InBatchNegativesLoss(),
        "classification": PairClassificationLoss(),
    }
)
"""Every embedding objective in training by its name."""


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
        """Divisor of cosines before a softmax."""
        self.matryoshka_dims: tuple[int, ...] = ()
        self.classifier: PairClassifier | None = None

    def configure(
        self, objective: EmbeddingObjectiveName, embedding: SentenceEmbeddingConfig, recipe: RecipeSpec
    ) -> None:
        """Set the objective, and the pooling of tokens where the recipe leaves it to the embedding.

        Dense layers are the caller's, who has their weights.

        Raises: SpecError for prompts of the embedding that the recipe does not mention.
        """
        check_prompts(recipe, embedding)
        self.embedding = replace(
            embedding.with_prompts(recipe.query_prompt or "", recipe.document_prompt or ""),
            pooling=recipe.pooling or embedding.pooling,
            max_seq_length=recipe.max_seq_length,
            similarity_fn_name="cosine",
        )
        self.temperature = recipe.temperature
        self.matryoshka_dims = recipe.matryoshka_dims
        if EMBEDDING_LOSSES[objective].needs_classifier:
            num_labels, std = self.config.num_labels, self.config.initializer_range
            self.classifier = PairClassifier(self.vector_size, num_labels, recipe.seed, std)
        self.objective = objective

    def packed_logits(self, seqs: PackedSequences, hidden: Tensor | None = None) -> Tensor:
        """Embed the texts of each pair, pair by pair, (W, H); `hidden` (T, H) is the encoder's output, if known."""
        return self.packed_embeddings(seqs, hidden)

    def compute_loss(self, embeddings: Tensor, targets: Tensor) -> Tensor:
        """The objective's loss, or the sum of those of the vectors' leading dimensions: (W, H), (B, …) → scalar.

        Leading dimensions make unit vectors, as cosines do anyway (Kusupati et al. 2022, section 3).
        """
        loss = EMBEDDING_LOSSES[self.objective].loss
        dims = self.matryoshka_dims or (embeddings.shape[-1],)
        first, *others = (loss(self, embeddings[:, :dim], targets) for dim in dims)
        return sum(others, first)

    @torch.inference_mode()
    def score_pairs(self, first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[Any]:
        """Predict a split's pairs from vectors (N, H), in the form that the task type decodes: (N, …)."""
        device = next(self.parameters()).device
        vectors = (torch.from_numpy(some).to(device) for some in (first, second))
        return EMBEDDING_LOSSES[self.objective].outputs(self, *vectors)

    @classmethod
    def from_pretrained(cls, folder: str | Path, *arguments: Any, **options: Any) -> Self:
        """The model of an encoder's or a sentence-transformers folder. Raises: CheckpointError."""
        model = super().from_pretrained(folder, *arguments, **options)
        file = Path(folder, CLASSIFIER_FILE)
        if file.exists():
            model.classifier = PairClassifier(model.vector_size, model.config.num_labels)
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


def _check_classifier(objective: EmbeddingObjectiveName, has_classifier: bool) -> None:
    """Check that classes are asked of a model with a classifier of pairs. Raises: SpecError."""
    if EMBEDDING_LOSSES[objective].needs_classifier and not has_classifier:
        raise SpecError(f"this model has no classifier of pairs; evaluate one trained with objective {objective}")


class EmbeddingHead(HeadTraining[DualEncoder, PairArrays]):
    """A vector for each text, (W, H); pairs are compared by the task's objective."""

    model_type = DualEncoder
    gives_vectors = True

    def configure(
        self, model: DualEncoder, objective: EmbeddingObjectiveName | None, recipe: RecipeSpec, init_folder: str | None
    ) -> None:
        """Pool tokens as the recipe says, else as the folder does, keep its Dense layers, compare by the objective."""
        assert objective is not None, "a task for embeddings has one"
        embedding = SentenceEmbeddingConfig()
        if init_folder is not None:
            embedding = read_sentence_embedding(Path(init_folder))
            model.dense = load_dense(Path(init_folder), embedding, model.config.hidden_size)
        model.configure(objective, embedding, recipe)

    def follow_teacher(
        self, student: DualEncoder, teacher: DualEncoder, objective: EmbeddingObjectiveName | None, recipe: RecipeSpec
    ) -> None:
        """Pool tokens as the teacher does unless the recipe says otherwise, and compare pairs by its classifier.

        A student of the teacher's width has copies of its Dense layers; another one keeps its own.
        """
        assert objective is not None, "a task for embeddings has one"
        embedding = teacher.embedding
        if student.config.hidden_size == teacher.config.hidden_size:
            student.dense = deepcopy(teacher.dense)
        else:
            embedding = replace(embedding, dense=student.embedding.dense, truncate_dim=student.embedding.truncate_dim)
        student.configure(objective, embedding, recipe)
        if student.classifier is not None and teacher.classifier is not None:
            student.classifier.load_state_dict(teacher.classifier.state_dict())

    def set_objective(self, model: DualEncoder, objective: EmbeddingObjectiveName | None) -> None:
        """Compare pairs by an objective; by the model's own when None."""
        if objective is not None:
            _check_classifier(objective, model.classifier is not None)
            model.objective = objective

    def check_objective(self, folder: Path, objective: EmbeddingObjectiveName | None) -> None:
        if objective is not None:
            _check_classifier(objective, (folder / CLASSIFIER_FILE).exists())

    def read_options(self, folder: Path, options: EmbeddingOptions) -> EmbeddingOptions:
        """The options with the length and the prompts that the folder names."""
        own, longest = read_sentence_embedding(folder), options.max_seq_length
        return replace(
            options,
            max_seq_length=min(own.max_seq_length or longest, longest),
            query_prompt=own.query_prompt,
            document_prompt=own.document_prompt,
        )

    def recognizes(self, folder: Path, config: BertConfig, architectures: Sequence[str]) -> bool:
        """A folder of sentence-transformers, whatever its encoder's class."""
        return super().recognizes(folder, config, architectures) or (folder / MODULES_FILE).exists()

    def targets(self, features: Features[PairArrays], windows: Windows, tokens: NDArray[np.int64]) -> Array:
        """A label for each pair; or the numbers of its texts, (B, …), -100 where others have more negatives."""
        numbers = features.head_arrays.text_numbers
        if numbers is None:
            return super().targets(features, windows, tokens)
        begins = features.begins_group(windows)
        begins[0] = True  # texts that are only embedded need not be whole groups
        sizes = np.diff(np.flatnonzero(begins), append=len(windows))
        rows = np.full((len(sizes), sizes.max()), IGNORE_INDEX, np.int32)
        rows[np.arange(sizes.max()) < sizes[:, None]] = numbers[windows]
        return rows

    def loss(self, model: DualEncoder, logits: Tensor, batch: Batch) -> Tensor:
        return model.compute_loss(logits, batch.targets)

    def part_loss(self, model: DualEncoder, logits: Tensor, batch: Batch) -> Tensor:
        """The loss as of any head; where pairs are compared with one another, with the vectors of all parts.

        Only this part's vectors have gradients, as the others have in their own parts (Gao et al. 2021, "Scaling Deep
        Contrastive Learning Batch Size under Memory Limited Setup", section 3, where gradients of vectors are kept).
        """
        part = batch.part
        if part is None or part.logits is None or part.label_share == 0.0:
            return super().part_loss(model, logits, batch)
        assert part.targets is not None, "they come with the logits"
        own = torch.from_numpy(np.flatnonzero(np.isin(part.whole, batch.windows)))
        places = copy_together({"places": own}, logits.device)["places"]
        value = model.compute_loss(part.logits.index_copy(0, places, logits), part.targets)
        # The whole loss for the gradient, and a share of it to add up.
        return value - (1.0 - part.label_share) * value.detach()

    def compares_examples(self, model: DualEncoder) -> bool:
        return EMBEDDING_LOSSES[model.objective].compares_pairs

    def soft_loss(self, logits: Tensor, teacher_logits: Tensor, batch: Batch, temperature: float) -> Tensor:
        """Squared distance of the two vectors of a text, mean over texts."""
        return vector_loss(logits, teacher_logits)

    def outputs(self, model: DualEncoder, features: Features[PairArrays], logits: NDArray[np.float32]) -> NDArray[Any]:
        """Cosines, class logits or the nearest pairs, by the model's objective; negatives are learned from alone."""
        first = features.group_starts[:-1]
        return model.score_pairs(logits[first], logits[first + 1])
