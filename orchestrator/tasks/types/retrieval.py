"""Retrieval: a query has relevant documents in a collection, which are to be ranked before all others.

No model is fine-tuned for it: any encoder finds the documents nearest to a query. Where pairs of texts are learned by
finding each text's partner (embedding), predictions are rankings as well, decoded from rows of examples (N, K).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bert_core.metrics import retrieval_metrics
from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import InputError, TaskDataError
from orchestrator.results import Split
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.catalogue import KnownTask
from orchestrator.tasks.features import Features, HeadArrays, Windows
from orchestrator.tasks.options import TaskOptions
from orchestrator.tasks.readers import Example
from orchestrator.tasks.types.base import Outputs, TaskDefinition, TaskType
from orchestrator.tasks.types.beir import RetrievalReader, find_collection, find_judgments
from orchestrator.tasks.types.requests import Request

RANK_CUTOFFS = (10, 100)
"""Ranks down to which a ranking is looked at."""


class JudgedQuery(Example, Protocol):
    """A query, and how much finding each relevant document is worth."""

    @property
    def gains(self) -> Mapping[str, float]:
        """Gain by the document's id."""


@dataclass(frozen=True, slots=True)
class RankingPrediction:
    """Documents that answer a query, best first, and their scores."""

    documents: tuple[str, ...]
    scores: tuple[float, ...] = ()


class Retrieval(TaskType[JudgedQuery, RankingPrediction, HeadArrays, TaskOptions]):
    """A ranking of documents for each query."""

    head = "retrieval"
    metrics = tuple(f"{name}_at_{k}" for k in RANK_CUTOFFS for name in ("ndcg", "mrr", "recall"))
    purpose = "collections of documents"
    arrays_type = HeadArrays
    options_type = TaskOptions
    spec_fields = frozenset()
    reason_not_learned = "a retrieval task is evaluated, not learned; learn pairs with head: embedding"
    is_searched = True

    def find_files(self, spec: TaskSpec) -> Mapping[Split, str]:
        """The files of judgments that the spec names or that its folder has."""
        find_collection(spec.id, spec.folder, None)
        files = spec.files or find_judgments(str(spec.folder))
        if not files:
            raise TaskDataError(
                f"task {spec.id}: {spec.folder} has neither qrels.tsv nor qrels/dev.tsv; give task.files"
            )
        return files

    def reader(self, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None) -> RetrievalReader:
        """Return the reader of the collection (documents, queries, judgments) that lies in the spec's folder."""
        return find_collection(spec.id, spec.folder, None if known is None else known.gains)

    def windows(
        self, task: TaskDefinition, examples: Sequence[JudgedQuery], tokenizer: Tokenizer, options: TaskOptions
    ) -> Windows[HeadArrays]:
        """Refuse windows: queries and documents are embedded one by one. Raises: InputError."""
        raise InputError(f"task {task.id} is searched, not classified; evaluate an encoder on it")

    def decode(
        self,
        task: TaskDefinition,
        features: Features[Any],
        examples: Sequence[JudgedQuery],
        outputs: Outputs,
        options: TaskOptions,
    ) -> list[RankingPrediction]:
        """The ids of the examples in each row, best first: (N, K)."""
        ids = np.array([example.id for example in examples], dtype=object)
        return [RankingPrediction(tuple(ids[row])) for row in outputs.astype(np.int64)]

    def score(
        self, task: TaskDefinition, examples: Sequence[JudgedQuery], predictions: Sequence[RankingPrediction]
    ) -> dict[str, float]:
        """NDCG, reciprocal rank and recall down to some ranks."""
        return retrieval_metrics(
            {example.id: found.documents for example, found in zip(examples, predictions, strict=True)},
            {example.id: example.gains for example in examples},
            RANK_CUTOFFS,
        )

    def baseline(
        self, task: TaskDefinition, learned: Sequence[JudgedQuery], examples: Sequence[JudgedQuery]
    ) -> list[RankingPrediction]:
        """The same order of documents for every query."""
        found = tuple(example.id for example in examples[: max(RANK_CUTOFFS)])
        return [RankingPrediction(found)] * len(examples)

    def row(self, task: TaskDefinition, example: JudgedQuery, prediction: RankingPrediction) -> dict[str, Any]:
        """The ranking, the gains, and whether a relevant document is among the first."""
        first = prediction.documents[: RANK_CUTOFFS[0]]
        return {
            "prediction": list(prediction.documents),
            "gold": dict(example.gains),
            "found": any(example.gains.get(document, 0.0) > 0 for document in first),
        }

    def decisions(self, prediction: RankingPrediction) -> Sequence[object]:
        """The whole ranking, as one."""
        return [prediction.documents]

    def example_of(self, task: TaskDefinition, request: Request) -> JudgedQuery:
        """Refuse a request: a query is not classified but searched for. Raises: InputError."""
        raise InputError("this model finds a text's partner among others; ask it with `embed` or `search`")

    def answer(self, task: TaskDefinition, prediction: RankingPrediction) -> dict[str, Any]:
        """The documents and their scores."""
        return {"documents": list(prediction.documents), "scores": list(prediction.scores)}
