"""Extractive question answering: the answer to a question is a span of a passage, or there is none.

A window is `[CLS] question [SEP] passage [SEP]`; those of a long passage begin `doc_stride` tokens apart (Devlin et al.
2019, section 4.2 and code). Between the two stand as many separators as in the tokenizer's own layout of a pair. The
model's outputs are start and end logits (T, 2).
"""

import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from statistics import median
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bert_core.answer_spans import QuestionSpans, decode_spans, tune_null_threshold
from bert_core.errors import DataError
from bert_core.metrics import answer_scores, squad_scores
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import SpecError
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.features import (
    PER_TOKEN,
    PER_WINDOW,
    Features,
    HeadArrays,
    Windows,
    cumulative,
    passage_windows,
    segment_types,
)
from orchestrator.tasks.text_files import plain_name
from orchestrator.tasks.types import base
from orchestrator.tasks.types.requests import Request, RequestForm
from orchestrator.tasks.types.squad import Answer, QaExample, SquadReader

_NUM_ANSWERED = 3
"""Candidates that are shown with an answer."""
_PASSAGE_CHARACTERS = 240
"""Characters of a passage that a kept prediction has beside it."""
_PASSAGES_AT_A_TIME = 256
_JOINER = "\u200d"
_JOINERS = ("\u200c", _JOINER)
"""Zero-width non-joiner and joiner."""
_Passage = tuple[NDArray[np.int32], NDArray[np.int32]]
"""Token ids (n,), and the characters each covers (n, 2)."""
Examples: TypeAlias = Sequence[QaExample]


@dataclass(frozen=True, slots=True)
class AnswerCandidate:
    """A span of the passage, by characters, and the sum of its start and end logits."""

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class AnswerPrediction:
    """The answer, empty for none, and the candidates."""

    text: str
    candidates: tuple[AnswerCandidate, ...] = ()
    """The best spans, best first."""
    null_margin: float = 0.0
    """Score of "no answer" minus that of the best span; no answer is predicted where it exceeds the threshold."""


@dataclass(frozen=True)
class QaArrays(HeadArrays):
    """Places of answers, and the characters of the passage that tokens cover. T tokens, W windows."""

    start_positions: NDArray[np.int32] = field(metadata=PER_WINDOW)
    """(W,) the answer's first token within the window; 0, the [CLS], where the window lacks the answer."""
    end_positions: NDArray[np.int32] = field(metadata=PER_WINDOW)
    """(W,) the answer's last token within the window, inclusive."""
    offsets: NDArray[np.int32] = field(metadata=PER_TOKEN)
    """(T, 2) characters of the passage; -1 off the passage."""


@dataclass(frozen=True, kw_only=True)
class QaOptions(base.TaskOptions):
    """Lengths of passages, questions and answers, and when no answer is given."""

    decoding_fields = frozenset({"max_answer_length", "null_threshold"})

    doc_stride: int
    """Tokens between the starts of two windows of a passage."""
    max_query_length: int
    """Tokens of a question at most."""
    max_answer_length: int
    """Tokens of an answer at most."""
    null_threshold: float = 0.0
    """ "No answer" is predicted at null margins above this, where questions may be unanswerable."""


class AnswerTarget(base.Target[QaExample, AnswerPrediction]):
    """A span of a passage for each question, or none."""

    field = "text"
    metrics = ("f1", "exact_match")

    def decode(
        self, task: base.TaskDefinition, examples: Examples, rows: Sequence[QuestionSpans], options: QaOptions
    ) -> list[AnswerPrediction]:
        """The best span of a question, or no answer where that may be."""
        threshold = options.null_threshold if task.unanswerable else math.inf
        return [_answer(question, found, threshold) for question, found in zip(examples, rows, strict=True)]

    def fit(
        self, task: base.TaskDefinition, examples: Examples, rows: Sequence[QuestionSpans], options: QaOptions
    ) -> QaOptions:
        """The null threshold with the best F1 (SQuAD 2.0 tunes it on validation), where there may be no answer."""
        if not task.unanswerable:
            return options
        best = [_answer(question, found, math.inf).text for question, found in zip(examples, rows, strict=True)]
        gold = [example.answer_texts for example in examples]
        answered, null = (
            np.array([answer_scores(*pair, unanswerable=True)[1] for pair in zip(texts, gold, strict=True)])
            for texts in (best, [""] * len(gold))
        )
        margins = np.array([found.null_margin for found in rows])
        return replace(options, null_threshold=tune_null_threshold(margins, answered, null))

    def score(
        self, task: base.TaskDefinition, examples: Examples, predictions: Sequence[AnswerPrediction]
    ) -> base.Scores:
        """Exact match and F1 as SQuAD's script counts them."""
        texts = {question.id: answer.text for question, answer in zip(examples, predictions, strict=True)}
        return squad_scores(texts, {question.id: question.answer_texts for question in examples})

    def baseline(self, task: base.TaskDefinition, learned: Examples, examples: Examples) -> list[AnswerPrediction]:
        """No answer where that may be; else the passage's first words, as many as half of the answers have."""
        if task.unanswerable:
            return [AnswerPrediction("")] * len(examples)
        num_words = int(median(len(e.answers[0].text.split()) for e in learned if e.answers))
        return [AnswerPrediction(" ".join(question.context.split()[:num_words])) for question in examples]

    def label_names(self, example: QaExample) -> tuple[str, ...]:
        """Whether there is an answer."""
        return ("answered" if example.answers else "without an answer",)

    def row(self, task: base.TaskDefinition, example: QaExample, prediction: AnswerPrediction) -> dict[str, Any]:
        """The question and the passage around its answer, predicted and gold answers, scores, candidates."""
        gold = example.answer_texts
        exact, f1 = answer_scores(prediction.text, gold, unanswerable=task.unanswerable)
        return {
            "question": example.question,
            "passage": _passage_around(example),
            "prediction": prediction.text,
            "gold": gold,
            "exact_match": exact,
            "f1": f1,
            "candidates": [{"text": c.text, "start": c.start, "score": c.score} for c in prediction.candidates],
            "null_margin": prediction.null_margin,
        }

    def answer(self, task: base.TaskDefinition, prediction: AnswerPrediction) -> dict[str, Any]:
        candidates = [asdict(candidate) for candidate in prediction.candidates[:_NUM_ANSWERED]]
        return {"answer": prediction.text, "candidates": candidates}


class QuestionAnswering(base.TaskType[QaExample]):
    head = "qa"
    target = AnswerTarget()
    reader_type = SquadReader
    arrays_type = QaArrays
    spec_fields = frozenset()
    recipe_fields = base.HEAD_FIELDS | {"doc_stride", "max_query_length", "max_answer_length"}
    options_type = QaOptions
    request = RequestForm(
        ("question", "context"), {"question": "Where did she live?", "context": "Ada Lovelace lived in London."}
    )
    labeled_layout = "SQuAD's JSON, or columns question, context and answers"
    own_layout = "SQuAD's JSON (.json)"
    splits_long_examples = True
    usual_length = 384
    shortest_lengths: ClassVar = {"max_seq_length": 192, "max_query_length": 48, "doc_stride": 64}

    def unlabeled_reader(self, path: str) -> SquadReader | None:
        """The reader of SQuAD's JSON, by the file's ending."""
        return SquadReader().without_labels() if plain_name(path).endswith(".json") else None

    def example_of(self, task: base.TaskDefinition, request: Request) -> QaExample:
        return QaExample(request.id, request.text("question"), request.text("context"))

    def goal(self, spec: TaskSpec) -> str:
        return "the answer is a part of the passage"

    def has_unanswerable(self, examples: Iterable[QaExample]) -> bool:
        return any(not example.answers for example in examples)

    def split_text(self, example: QaExample) -> str:
        """The passage: questions on the same one are answered from what was learned of it."""
        return example.context

    def windows(
        self, task: base.TaskDefinition, examples: Examples, tokenizer: Tokenizer, options: QaOptions
    ) -> Windows[QaArrays]:
        """Every question before its passage, a long passage in windows that overlap; the first answer is learned."""
        ids, offsets, segments, example_index, positions = [], [], [], [], []
        layout = tokenizer.segment_layout
        suffix = np.array([layout.suffix], np.int32)
        num_unreachable = 0
        for index, (example, query, passage) in enumerate(_encode(examples, tokenizer)):
            prefix = np.array([layout.prefix, *query[: options.max_query_length], *layout.between], np.int32)
            room = options.max_seq_length - len(prefix) - 1
            if room < 1:
                raise SpecError(
                    f"recipe.max_seq_length {options.max_seq_length} leaves no room for a passage after a question of "
                    f"{len(prefix) - 1 - len(layout.between)} tokens; raise it, or lower recipe.max_query_length"
                )
            span = answer_tokens(passage[1], example.answers[0]) if example.answers else None
            is_whole_somewhere = False
            off_passage = np.full((len(prefix), 2), -1, np.int32)
            for begin, end in passage_windows(len(passage[0]), room, options.doc_stride):
                ids += [prefix, passage[0][begin:end], suffix]
                offsets += [off_passage, passage[1][begin:end], off_passage[:1]]
                segments.append((len(prefix), end - begin + 1))
                example_index.append(index)
                inside = span is not None and begin <= span[0] and span[1] < end
                shift = len(prefix) - begin
                positions.append((span[0] + shift, span[1] + shift) if span is not None and inside else (0, 0))
                is_whole_somewhere = is_whole_somewhere or inside
            num_unreachable += span is not None and not is_whole_somewhere
        lengths = np.array(segments, np.int64)
        start_positions, end_positions = np.array(positions, np.int32).T
        return Windows(
            input_ids=np.concatenate(ids),
            token_type_ids=segment_types(lengths, layout.type_of_second),
            cu_seqlens=cumulative(lengths.sum(axis=1)),
            example_index=np.array(example_index, np.int32),
            head_arrays=QaArrays(
                start_positions=np.ascontiguousarray(start_positions),
                end_positions=np.ascontiguousarray(end_positions),
                offsets=np.concatenate(offsets),
            ),
            counts={"num_unreachable": num_unreachable},
        )

    def gather(self, features: Features[QaArrays], outputs: base.Outputs, options: QaOptions) -> list[QuestionSpans]:
        """The best spans over all windows of each question: (T, 2)."""
        if outputs.ndim != 2 or outputs.shape[1] != 2:
            raise DataError(
                f"the outputs have the shape {outputs.shape}; question answering is decoded from "
                "(start_logits, end_logits), two columns"
            )
        return decode_spans(
            outputs[:, 0],
            outputs[:, 1],
            features.head_arrays.offsets,
            features.cu_seqlens,
            features.example_index,
            max_answer_length=options.max_answer_length,
        )


def _answer(question: QaExample, found: QuestionSpans, threshold: float) -> AnswerPrediction:
    """The best span of a question, or no answer where its margin exceeds the threshold."""
    candidates = tuple(
        AnswerCandidate(question.context[span.start : span.end], span.start, span.end, span.score)
        for span in found.spans
    )
    is_answered = bool(candidates) and found.null_margin <= threshold
    return AnswerPrediction(candidates[0].text if is_answered else "", candidates, found.null_margin)


def _passage_around(question: QaExample) -> str:
    """Part of the passage around the first right answer, or its beginning: with it a mistake can be understood."""
    answer = question.answers[0] if question.answers else None
    middle = 0 if answer is None else answer.start + len(answer.text) // 2
    begin = max(0, min(middle - _PASSAGE_CHARACTERS // 2, len(question.context) - _PASSAGE_CHARACTERS))
    end = begin + _PASSAGE_CHARACTERS
    return ("…" if begin else "") + question.context[begin:end] + ("…" if end < len(question.context) else "")


def answer_tokens(offsets: NDArray[np.int32], answer: Answer) -> tuple[int, int] | None:
    """First and last token that an answer touches, None when it touches none."""
    first = int(np.searchsorted(offsets[:, 1], answer.start, side="right"))
    last = int(np.searchsorted(offsets[:, 0], answer.start + len(answer.text), side="left")) - 1
    return (first, last) if first <= last else None


def _encode(examples: Examples, tokenizer: Tokenizer) -> Iterator[tuple[QaExample, list[int], _Passage]]:
    """Each question's token ids with its passage, which is tokenized once for all that follow one another on it."""
    groups = [(context, list(group)) for context, group in groupby(examples, key=lambda example: example.context)]
    for start in range(0, len(groups), _PASSAGES_AT_A_TIME):
        chunk = groups[start : start + _PASSAGES_AT_A_TIME]
        passages = tokenizer.encode_batch([context for context, _ in chunk])
        queries = iter(tokenizer.encode_ids([example.question for _, group in chunk for example in group]))
        for encoding, (context, group) in zip(passages, chunk, strict=True):
            tokens = np.array(encoding.ids, np.int32), _token_characters(encoding.offsets, context)
            for example in group:
                yield example, next(queries), tokens


def _token_characters(offsets: Sequence[tuple[int, int]], context: str) -> NDArray[np.int32]:
    """The characters of each token, (n, 2): whole letters, without the space that some tokenizers count to a word."""
    without_space = [(end - len(context[start:end].lstrip()), end) for start, end in offsets]
    letters = without_space if context.isascii() else [whole_letters(context, *span) for span in without_space]
    return np.array(letters, np.int32).reshape(-1, 2)


def whole_letters(text: str, start: int, end: int) -> tuple[int, int]:
    """Widen a span to whole letters: a letter's marks belong to it, and so does what a zero-width joiner adds.

    The rule is that of extended grapheme clusters (Unicode Standard Annex 29, GB9 to GB11), except that a joiner joins
    letters of every script, and that one without anything to join is left out.
    """
    while 0 < start < end and _continues(text, start):
        start -= 1
    while start < end < len(text) and _continues(text, end):
        end += 1
    return start, end


def _continues(text: str, place: int) -> bool:
    """Whether the character at a place belongs to the letter before it."""
    character, before = text[place], text[place - 1]
    if character in _JOINERS:
        after = text[place + 1 : place + 2]
        return bool(after) and (after in _JOINERS or _is_mark(after) or (character == _JOINER and not after.isspace()))
    return _is_mark(character) or (before == _JOINER and not character.isspace())


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) in ("Mn", "Mc", "Me")
