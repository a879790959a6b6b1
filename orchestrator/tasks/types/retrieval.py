"""Retrieval: a query has relevant documents in a collection, which are to be ranked before all others.

No model is fine-tuned for it: any encoder finds the documents nearest to a query. Where pairs of texts are learned by
finding each text's partner (embedding), predictions are rankings as well, decoded from rows of examples (N, K).

Collections have the layout of BEIR (Thakur et al. 2021, code): documents, queries, judgments.

corpus.jsonl    {"_id", "title", "text"}
queries.jsonl   {"_id", "text"}
qrels.tsv       query-id, corpus-id, score; or qrels/train.tsv, dev.tsv and test.tsv
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import numpy as np

from bert_core.metrics import retrieval_metrics
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import InputError, SpecError, TaskDataError
from orchestrator.base.results import Split
from orchestrator.specs.task import TaskSpec
from orchestrator.storage.uris import absolute
from orchestrator.tasks.catalogue import KnownTask
from orchestrator.tasks.features import HeadArrays, Windows
from orchestrator.tasks.table_files import read_rows
from orchestrator.tasks.text_files import BadRecords, Reader, find_file
from orchestrator.tasks.types.base import Outputs, Scores, Target, TaskDefinition, TaskOptions, TaskType
from orchestrator.tasks.types.requests import Request

IS_SEARCHED = "this model finds a text's partner among others; ask it with `embed` or `search`"
RANK_CUTOFFS = (10, 100)
"""Ranks down to which a ranking is looked at."""
JUDGMENT_FILES: Mapping[Split, tuple[str, ...]] = {
    "train": ("qrels/train.tsv",),
    "validation": ("qrels.tsv", "qrels/dev.tsv"),
    "test": ("qrels/test.tsv",),
}


Queries: TypeAlias = Sequence[Any]
"""Examples with an `id` and `gains` by the ids of documents."""


@dataclass(frozen=True, slots=True)
class QueryExample:
    """A query, and how much finding each relevant document is worth."""

    id: str
    text: str
    gains: Mapping[str, float]
    """Gain by the document's id; documents without one are not relevant."""


@dataclass(frozen=True, slots=True)
class RankingPrediction:
    """Documents that answer a query, best first, and their scores."""

    documents: tuple[str, ...]
    scores: tuple[float, ...] = ()


@dataclass(frozen=True)
class RetrievalReader(Reader[QueryExample]):
    """Reads judgments as queries with the documents that are relevant to them."""

    documents: str
    queries: str
    gains: Mapping[str, float] | None = None
    """Gain by the score in the file; None takes the score as it stands."""

    @property
    def shared_files(self) -> tuple[str, ...]:
        return self.documents, self.queries

    def at_absolute_paths(self) -> Self:
        return replace(self, documents=absolute(self.documents), queries=absolute(self.queries))

    def read(self, path: str, bad: BadRecords) -> Iterator[QueryExample]:
        """The queries with a relevant document, in the order of their file."""
        texts = self._read_texts(bad)
        gains: dict[str, dict[str, float]] = {name: {} for name in texts}
        for place, (query, document, score) in read_rows(path, ("query-id", "corpus-id", "score"), bad):
            gain = self._gain(score)
            if str(query) not in gains:
                bad.found(place, f"query-id {query!r} is not in {self.queries}")
            elif not math.isfinite(gain):
                known = "a number" if self.gains is None else f"one of {', '.join(self.gains)}"
                bad.found(place, f"score {score!r} is not {known}")
            else:
                gains[str(query)][str(document)] = gain
        for name, text in texts.items():
            if any(gain > 0 for gain in gains[name].values()):
                yield QueryExample(name, text, gains[name])

    def _read_texts(self, bad: BadRecords) -> dict[str, str]:
        own = replace(bad, path=self.queries, count=0)
        texts: dict[str, str] = {}
        for place, (name, text) in read_rows(self.queries, ("_id", "text"), own):
            if not isinstance(text, str) or not text.strip():
                own.found(place, "text holds no text")
            elif str(name) in texts:
                own.found(place, f"_id {name!r} stands twice")
            else:
                texts[str(name)] = text
        bad.count += own.count
        return texts

    def _gain(self, score: object) -> float:
        """Gain of a judgment; NaN where it is no number."""
        if self.gains is not None:
            return self.gains.get(str(score), math.nan)
        try:
            return float(str(score))
        except ValueError:
            return math.nan


class RankingTarget(Target[Any, RankingPrediction]):
    """A ranking of documents for each query."""

    field = "documents"
    metrics = tuple(f"{name}_at_{k}" for k in RANK_CUTOFFS for name in ("ndcg", "mrr", "recall"))

    def decode(
        self, task: TaskDefinition, examples: Queries, rows: Outputs, options: TaskOptions
    ) -> list[RankingPrediction]:
        """The ids of the examples in each row, best first: (N, K)."""
        ids = np.array([example.id for example in examples], dtype=object)
        return [RankingPrediction(tuple(ids[row])) for row in rows.astype(np.int64)]

    def score(self, task: TaskDefinition, examples: Queries, predictions: Sequence[RankingPrediction]) -> Scores:
        """NDCG, reciprocal rank and recall down to some ranks."""
        return retrieval_metrics(
            {example.id: found.documents for example, found in zip(examples, predictions, strict=True)},
            {example.id: example.gains for example in examples},
            RANK_CUTOFFS,
        )

    def baseline(self, task: TaskDefinition, learned: Queries, examples: Queries) -> list[RankingPrediction]:
        """The same order of documents for every query."""
        found = tuple(example.id for example in examples[: max(RANK_CUTOFFS)])
        return [RankingPrediction(found)] * len(examples)

    def row(self, task: TaskDefinition, example: Any, prediction: RankingPrediction) -> dict[str, Any]:
        """The ranking, the gains, and whether a relevant document is among the first."""
        first = prediction.documents[: RANK_CUTOFFS[0]]
        return {
            "prediction": list(prediction.documents),
            "gold": dict(example.gains),
            "found": any(example.gains.get(document, 0.0) > 0 for document in first),
        }


class Retrieval(TaskType[QueryExample]):
    head = "retrieval"
    target = RankingTarget()
    spec_fields = frozenset()
    is_searched = True

    def find_files(self, spec: TaskSpec) -> Mapping[Split, str]:
        """The files of judgments that the spec names or that its folder has."""
        self.reader(spec, None)  # the collection is there
        found = {split: find_file(str(spec.folder), names) for split, names in JUDGMENT_FILES.items()}
        files = spec.files or {split: path for split, path in found.items() if path is not None}
        if not files:
            raise TaskDataError(
                f"task {spec.id}: {spec.folder} has neither qrels.tsv nor qrels/dev.tsv; give task.files"
            )
        return files

    def reader(self, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None) -> RetrievalReader:
        """The reader of the collection that lies in the spec's folder. Raises: SpecError without a folder."""
        if spec.folder is None:
            raise SpecError(
                f"task.folder: task {spec.id} is read from a folder with corpus.jsonl and queries.jsonl; name it"
            )
        corpus, queries = (find_file(spec.folder, (name,)) for name in ("corpus.jsonl", "queries.jsonl"))
        if corpus is None or queries is None:
            name = "corpus.jsonl" if corpus is None else "queries.jsonl"
            raise TaskDataError(f"task {spec.id}: there is no {name} in {spec.folder}, also not .gz, .xz or .zst")
        return RetrievalReader(corpus, queries, None if known is None else known.gains)

    def example_of(self, task: TaskDefinition, request: Request) -> QueryExample:
        """Refuse a request: a query is not classified but searched for. Raises: InputError."""
        raise InputError(IS_SEARCHED)

    def windows(
        self, task: TaskDefinition, examples: Queries, tokenizer: Tokenizer, options: TaskOptions
    ) -> Windows[HeadArrays]:
        """Refuse windows: queries and documents are embedded one by one. Raises: InputError."""
        raise InputError(f"task {task.id} is searched, not classified; evaluate an encoder on it")
