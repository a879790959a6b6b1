"""The first hits scored again by a model that reads query and document together (Nogueira and Cho 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.finetuning.evaluation import predict_examples
from orchestrator.finetuning.model_folder import FineTunedModel, load_fine_tuned
from orchestrator.finetuning.scoring_room import ScoringRoom
from orchestrator.models.device import choose_device
from orchestrator.retrieval.document_index import FoundDocument
from orchestrator.specs.network import Precision
from orchestrator.storage import local_copy
from orchestrator.tasks.types.base import Request


@dataclass(frozen=True)
class Reranking:
    """Options of reranking: model folder, label that counts, number of hits."""

    folder: str
    """A model fine-tuned on pairs: for a score, or for classes."""
    relevant_label: str | None = None
    """The class whose probability is the score."""
    num_candidates: int = 50
    """Number of first hits that are scored again."""


class Reranker:
    """A cross-encoder. Its scores put the first hits in order; the rest follow them as they were."""

    def __init__(
        self, asked: Reranking, batch_size: int = 64, device: str = "cpu", precision: Precision = "fp32"
    ) -> None:
        """Load the model that `asked` names, on a device.

        Raises: InputError when the model says nothing about pairs or has no such label; CheckpointError.
        """
        self.model: FineTunedModel = load_fine_tuned(local_copy(asked.folder))
        self.model.model.to(choose_device(device, precision=precision))
        self.task = self.model.task()
        self.num_candidates = asked.num_candidates
        self.batch_size = batch_size
        self.precision = precision
        self._room = ScoringRoom()
        self._relevance = self.task.type.relevance(self.task, asked.relevant_label, asked.folder)

    def rerank(self, query: str, hits: Sequence[FoundDocument]) -> list[FoundDocument]:
        """The hits in their new order; equal scores keep theirs."""
        first = hits[: self.num_candidates]
        if not first:
            return []
        scores = self._score(query, [hit.text for hit in first])
        order = np.argsort(-np.array(scores), kind="stable")
        return [*(first[place]._replace(score=scores[place]) for place in order), *hits[self.num_candidates :]]

    def _score(self, query: str, texts: Sequence[str]) -> list[float]:
        head, keys = self.task.head, self.task.type.request_keys
        requests = (Request({"text": query, "text_pair": text}, n, head, keys) for n, text in enumerate(texts, start=1))
        examples = [self.task.type.example_of(self.task, request) for request in requests]
        predictions = predict_examples(self.model, examples, self.batch_size, self.precision, self._room)
        return [self._relevance(prediction) for prediction in predictions]
