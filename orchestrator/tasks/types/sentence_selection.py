"""Sentence selection: some of a document's sentences matter, for themselves or as an answer to a query.

A document is read as in Liu and Lapata 2019, section 3.1: each sentence as `[CLS] sentence [SEP]`, segments in turn A
and B. Done differently: a query, where there is one, stands in front as a sentence that is not scored, and a document
that is too long becomes several windows of whole sentences, the query in front of each; the paper cuts it off.

The model's outputs are a logit for each token, (T,) or (T, 1), of which those on the sentences' [CLS] count.

Shapes: T tokens, K sentences of all documents.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bert_core.constants import IGNORE_INDEX
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import SpecError
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.catalogue import KnownTask
from orchestrator.tasks.features import PER_TOKEN, Array, Features, HeadArrays, Windows, fill_windows
from orchestrator.tasks.table_files import read_rows
from orchestrator.tasks.text_examples import are_texts
from orchestrator.tasks.text_files import BadRecords, LabeledReader
from orchestrator.tasks.types import base
from orchestrator.tasks.types.requests import Request, RequestForm


@dataclass(frozen=True, slots=True)
class SentencesExample:
    """A document as a list of sentences, perhaps a query, and the sentences that matter."""

    id: str
    sentences: tuple[str, ...]
    query: str | None = None
    selected: tuple[int, ...] | None = None
    """Places of the sentences that matter, from 0, ascending; None where they are not known."""


Examples: TypeAlias = Sequence[SentencesExample]


@dataclass(frozen=True, slots=True)
class SentencesPrediction:
    """The places of the selected sentences, ascending, and a score of every sentence, by which they are ranked."""

    selected: tuple[int, ...]
    scores: tuple[float, ...]

    def rank(self, places: Sequence[int]) -> int:
        """Rank of the best of some sentences among all, from 1; of equal scores the earlier sentence is better."""
        ranking = sorted(range(len(self.scores)), key=lambda place: -self.scores[place])
        return 1 + min(map(ranking.index, places))


@dataclass(frozen=True)
class SentenceArrays(HeadArrays):
    """Starts of sentences among the T tokens, and labels of those that matter."""

    is_sentence_start: NDArray[np.bool_] = field(metadata=PER_TOKEN)
    """(T,) whether the token is the [CLS] of a sentence; that of a query is none."""
    token_labels: NDArray[np.int32] = field(metadata=PER_TOKEN)
    """(T,) 1 or 0 on a sentence's [CLS], by whether it matters; -100 elsewhere and where that is not known."""


@dataclass(frozen=True)
class SentencesTable(LabeledReader[SentencesExample]):
    """Reads documents whose sentences are a list (JSONL, Parquet), perhaps with a query."""

    sentences_column: str
    query_column: str | None
    selected_column: str

    @classmethod
    def of_spec(cls, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None) -> Self:
        """Columns are `sentences` and `selected` unless named; a second column of text is the query."""
        sentences, *query = spec.text_columns or ("sentences",)
        return cls(sentences, query[0] if query else None, spec.label_column or "selected")

    def read(self, path: str, bad: BadRecords) -> Iterator[SentencesExample]:
        """The file's documents in order; an empty query is none."""
        named = (self.sentences_column, self.query_column, self.selected_column if self.labeled else None)
        columns = tuple(filter(None, named))
        for number, (place, values) in enumerate(read_rows(path, columns, bad)):
            try:
                yield self._example(str(number), dict(zip(columns, values, strict=True)))
            except ValueError as error:
                bad.found(place, str(error))

    def _example(self, name: str, record: Mapping[str, object]) -> SentencesExample:
        sentences, query = record[self.sentences_column], record.get(self.query_column or "")
        if not are_texts(sentences) or not sentences:
            raise ValueError(f"{self.sentences_column} must be a list of texts, at least one")
        if query is not None and not isinstance(query, str):
            raise ValueError(f"{self.query_column} holds no text; null stands for no query")
        column = self.selected_column
        selected = find_selected(column, record[column], len(sentences)) if self.labeled else None
        return SentencesExample(name, tuple(sentences), query or None, selected)


def find_selected(column: str, value: object, num_sentences: int) -> tuple[int, ...]:
    """The places of selected sentences, given as numbers from 0 or as true and false for each sentence.

    Raises: ValueError, naming the column and what is wrong with its value.
    """
    if not isinstance(value, list) or {type(part) for part in value} not in ({int}, {bool}, set()):
        raise ValueError(f"{column} must be a list of numbers of sentences or of true and false for each; [] is none")
    if value and isinstance(value[0], bool):
        if len(value) != num_sentences:
            raise ValueError(f"{column} has {len(value)} times true or false for {num_sentences} sentences")
        return tuple(np.flatnonzero(value).tolist())
    outside = [place for place in value if not 0 <= place < num_sentences]
    if outside:
        raise ValueError(f"{column} has {outside[0]}, which is no number from 0 to {num_sentences - 1}")
    return tuple(sorted(set(value)))


@dataclass(frozen=True, kw_only=True)
class SentenceOptions(base.TaskOptions):
    """Options of sentence selection."""

    max_query_length: int
    """Tokens of a query at most."""


class SentencesTarget(base.Target[SentencesExample, SentencesPrediction]):
    """The sentences of a document that matter."""

    field = "selected"
    metrics = ("f1", "precision", "recall", "mrr", "precision_at_1")

    def decode(
        self, task: base.TaskDefinition, examples: Examples, rows: Sequence[Array], options: SentenceOptions
    ) -> list[SentencesPrediction]:
        """The sigmoid of each sentence's logit, and the sentences above one half."""
        scores = map(base.sigmoid, rows)
        return [SentencesPrediction(tuple(np.flatnonzero(s > 0.5).tolist()), tuple(s.tolist())) for s in scores]

    def score(
        self, task: base.TaskDefinition, examples: Examples, predictions: Sequence[SentencesPrediction]
    ) -> base.Scores:
        """Precision, recall and F1 over the sentences of all documents, and how well scores rank those of a document.

        `mrr` is the mean of 1 / rank of the best-ranked sentence that matters, `precision_at_1` the share of documents
        whose first-ranked sentence matters; both over the documents in which some sentence does.
        """
        gold = [example.selected or () for example in examples]
        pairs = list(zip(gold, predictions, strict=True))
        num_right = sum(len({*places} & {*prediction.selected}) for places, prediction in pairs)
        num_selected, num_gold = sum(len(prediction.selected) for prediction in predictions), sum(map(len, gold))
        ranks: list[float] = [prediction.rank(places) for places, prediction in pairs if places] or [np.inf]
        return {
            "f1": 2 * num_right / max(1, num_selected + num_gold),
            "precision": num_right / max(1, num_selected),
            "recall": num_right / max(1, num_gold),
            "mrr": fmean(1 / rank for rank in ranks),
            "precision_at_1": fmean(rank == 1 for rank in ranks),
        }

    def baseline(self, task: base.TaskDefinition, learned: Examples, examples: Examples) -> list[SentencesPrediction]:
        """The first sentences ("lead"), as many as matter in half of the documents; the earlier, the higher."""
        num_selected = int(median(len(example.selected or ()) for example in learned))
        scores = [tuple(np.linspace(1.0, 0.0, len(example.sentences)).tolist()) for example in examples]
        return [SentencesPrediction(tuple(range(num_selected))[: len(some)], some) for some in scores]

    def agreement(self, first: Sequence[SentencesPrediction], second: Sequence[SentencesPrediction]) -> float:
        """Share of the sentences that both select, or neither."""
        return base.share_equal(
            *([place in one.selected for one in side for place in range(len(one.scores))] for side in (first, second))
        )


class SentenceSelection(base.TaskType[SentencesExample]):
    head = "sentence_selection"
    target = SentencesTarget()
    reader_type = SentencesTable
    arrays_type = SentenceArrays
    spec_fields = frozenset({"text_columns", "label_column"})
    recipe_fields = base.HEAD_FIELDS | {"max_query_length"}
    options_type = SentenceOptions
    request = RequestForm(("sentences", "query"), {"sentences": ["It rained.", "The bridge fell at noon."]})
    splits_long_examples = True
    usual_length = 512

    def example_of(self, task: base.TaskDefinition, request: Request) -> SentencesExample:
        return SentencesExample(request.id, request.texts("sentences"), request.optional_text("query"))

    def windows(
        self, task: base.TaskDefinition, examples: Examples, tokenizer: Tokenizer, options: SentenceOptions
    ) -> Windows[SentenceArrays]:
        """Windows of whole sentences in order; a sentence that is longer than a window loses its end."""
        layout = tokenizer.segment_layout
        input_ids: list[int] = []
        types: list[int] = []
        starts: list[int] = []
        labels: list[int] = []
        bounds = [0]
        example_index: list[int] = []
        num_truncated = 0
        for index, example in enumerate(examples):
            query, *sentences = tokenizer.encode_ids([example.query or "", *example.sentences])
            front = [[layout.prefix, *query[: options.max_query_length], layout.suffix]] if example.query else []
            room = options.max_seq_length - sum(map(len, front))
            if room < 3:
                raise SpecError(
                    f"recipe.max_seq_length {options.max_seq_length} leaves no room for a sentence after a query of "
                    f"{len(front[0]) - 2} tokens; raise it, or lower recipe.max_query_length"
                )
            num_truncated += any(len(ids) > room - 2 for ids in sentences)
            pieces = [[layout.prefix, *ids[: room - 2], layout.suffix] for ids in sentences]
            for window in fill_windows(pieces, room):
                for number, piece in enumerate([*front, *window]):
                    if number >= len(front):
                        starts.append(len(input_ids))
                    input_ids += piece
                    types += [number % 2 * layout.type_of_second] * len(piece)
                bounds.append(len(input_ids))
                example_index.append(index)
            selected = example.selected
            labels += [IGNORE_INDEX if selected is None else i in selected for i in range(len(sentences))]
        token_labels = np.full(len(input_ids), IGNORE_INDEX, np.int32)
        token_labels[starts] = labels
        is_sentence_start = np.isin(np.arange(len(input_ids)), starts)
        return Windows(
            input_ids=np.array(input_ids, np.int32),
            token_type_ids=np.array(types, np.int8),
            cu_seqlens=np.array(bounds, np.int64),
            example_index=np.array(example_index, np.int32),
            head_arrays=SentenceArrays(is_sentence_start, token_labels),
            counts={"num_truncated": num_truncated, "num_sentences": len(starts)},
        )

    def gather(
        self, features: Features[SentenceArrays], outputs: base.Outputs, options: SentenceOptions
    ) -> list[Array]:
        """The logits of each document's sentences: (T,) or (T, 1)."""
        base.check_length(outputs.reshape(-1), len(features.input_ids), "token")
        starts = np.flatnonzero(features.head_arrays.is_sentence_start)  # (K,)
        first_tokens = features.cu_seqlens[np.flatnonzero(np.diff(features.example_index)) + 1]
        return np.split(outputs.reshape(-1)[starts], np.searchsorted(starts, first_tokens))
