"""Collections for retrieval, in the layout of BEIR (Thakur et al. 2021, code): documents, queries, judgments.

corpus.jsonl    {"_id", "title", "text"}
queries.jsonl   {"_id", "text"}
qrels.tsv       query-id, corpus-id, score; or qrels/train.tsv, dev.tsv and test.tsv
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from orchestrator.errors import SpecError, TaskDataError
from orchestrator.results import Split
from orchestrator.storage.uris import absolute
from orchestrator.tasks.readers import Reader
from orchestrator.tasks.table_files import read_rows
from orchestrator.tasks.text_files import BadRecords, find_file

JUDGMENT_FILES: Mapping[Split, tuple[str, ...]] = {
    "train": ("qrels/train.tsv",),
    "validation": ("qrels.tsv", "qrels/dev.tsv"),
    "test": ("qrels/test.tsv",),
}


@dataclass(frozen=True, slots=True)
class QueryExample:
    """A query, and how much finding each relevant document is worth."""

    id: str
    text: str
    gains: Mapping[str, float]
    """Gain by the document's id; documents without one are not relevant."""


@dataclass(frozen=True)
class RetrievalReader(Reader[QueryExample]):
    """Reads judgments as queries with the documents that are relevant to them."""

    documents: str
    queries: str
    gains: Mapping[str, float] | None = None
    """Gain by the score in the file; None takes the score as it stands."""

    @property
    def shared_files(self) -> tuple[str, ...]:
        """Documents and queries, which every split is read with beside its judgments."""
        return self.documents, self.queries

    def at_absolute_paths(self) -> Self:
        """The reader with its shared files at absolute paths."""
        return replace(self, documents=absolute(self.documents), queries=absolute(self.queries))

    def read(self, path: str, bad: BadRecords) -> Iterator[QueryExample]:
        """The queries with a relevant document, in the order of their file."""
        texts = self._read_texts(bad)
        gains: dict[str, dict[str, float]] = {name: {} for name in texts}
        for place, (query, document, score) in read_rows(path, ("query-id", "corpus-id", "score"), bad):
            gain = self._gain(score)
            if query not in gains:
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


def find_collection(task_id: str, folder: str | None, gains: Mapping[str, float] | None) -> RetrievalReader:
    """The reader of a folder's collection. Raises: SpecError without a folder, TaskDataError without a file."""
    if folder is None:
        raise SpecError(
            f"task.folder: task {task_id} is read from a folder with corpus.jsonl and queries.jsonl; name it"
        )
    paths = {name: find_file(folder, [f"{name}.jsonl"]) for name in ("corpus", "queries")}
    for name, path in paths.items():
        if path is None:
            raise TaskDataError(f"task {task_id}: there is no {name}.jsonl in {folder}, also not .gz, .xz or .zst")
    return RetrievalReader(str(paths["corpus"]), str(paths["queries"]), gains)


def find_judgments(folder: str) -> dict[Split, str]:
    """The file of judgments of each split that a folder has."""
    found = {split: find_file(folder, names) for split, names in JUDGMENT_FILES.items()}
    return {split: path for split, path in found.items() if path is not None}
