"""The first hits scored again by a model that reads query and document together (Nogueira and Cho 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from orchestrator.errors import InputError
from orchestrator.finetuning.evaluation import predict_examples
from orchestrator.finetuning.model_folder import FineTunedModel, load_fine_tuned
from orchestrator.retrieval.document_index import FoundDocument
from orchestrator.storage import local_copy
from orchestrator.tasks import ClassificationExample, ClassPrediction, RegressionExample, ValuePrediction


@dataclass(frozen=True)
class Reranking:
    """What a person asks for."""

    folder: str
    """A model fine-tuned on pairs: for a score, or for classes."""
    label: str | None = None
    """The class whose probability is the score."""
    candidates: int = 50
    """How many first hits are scored again."""


class Reranker:
    """A cross-encoder. Its scores put the first hits in order; the rest follow them as they were."""

    def __init__(self, asked: Reranking, batch_size: int = 64) -> None:
        """Raises: InputError when the model says nothing about pairs or has no such label; CheckpointError."""
        self.model: FineTunedModel = load_fine_tuned(local_copy(asked.folder))
        self.candidates = asked.candidates
        self.batch_size = batch_size
        self.label = _place_of_label(self.model, asked)

    def rerank(self, query: str, hits: Sequence[FoundDocument]) -> list[FoundDocument]:
        """The hits in their new order; equal scores keep theirs."""
        first = hits[: self.candidates]
        if not first:
            return []
        scores = self._score(query, [hit.text for hit in first])
        order = np.argsort(-np.array(scores), kind="stable")
        return [*(first[place]._replace(score=scores[place]) for place in order), *hits[self.candidates :]]

    def _score(self, query: str, texts: Sequence[str]) -> list[float]:
        kind = RegressionExample if self.label is None else ClassificationExample
        examples = [kind(str(number), query, text) for number, text in enumerate(texts)]
        predictions = predict_examples(self.model, examples, self.batch_size)
        if self.label is None:
            return [prediction.value for prediction in cast(list[ValuePrediction], predictions)]
        return [prediction.probabilities[self.label] for prediction in cast(list[ClassPrediction], predictions)]


def _place_of_label(model: FineTunedModel, asked: Reranking) -> int | None:
    """The place of the class that counts; None for a model that gives a score."""
    head, labels = model.record.head, ", ".join(model.labels)
    if head == "regression":
        if asked.label is not None:
            raise InputError(f"{asked.folder} gives a score and has no label {asked.label!r}; leave relevant out")
        return None
    if head != "classification":
        raise InputError(
            f"{asked.folder} is a model for {head}; documents are scored again by one fine-tuned on pairs of texts, "
            "for regression or classification"
        )
    if asked.label not in model.labels:
        wrong = "" if asked.label is None else f", and {asked.label!r} is none of them"
        raise InputError(
            f"{asked.folder} knows the labels {labels}{wrong}; name the one that marks a document that answers as "
            "relevant"
        )
    return model.labels.index(asked.label)
