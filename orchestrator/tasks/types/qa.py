"""Extractive question answering: the answer to a question is a span of a passage, or there is none.

The model's outputs are start and end logits (T, 2).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median
from typing import Any, ClassVar

import numpy as np

from bert_core.answer_spans import decode_spans, tune_null_threshold
from bert_core.errors import DataError
from bert_core.metrics import answer_scores, squad_scores
from bert_core.text.tokenization import Tokenizer
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.catalogue import KnownTask
from orchestrator.tasks.features import Features, Windows
from orchestrator.tasks.options import TaskOptions
from orchestrator.tasks.text_files import plain_name
from orchestrator.tasks.types.base import Outputs, TaskDefinition, TaskType
from orchestrator.tasks.types.qa_windows import QaArrays, build_qa_windows
from orchestrator.tasks.types.requests import Request
from orchestrator.tasks.types.squad import QaExample, SquadReader

_NUM_ANSWERED = 3
"""Candidates that are shown with an answer."""
_PASSAGE_CHARACTERS = 240
"""Characters of a passage that a kept prediction has beside it."""


@dataclass(frozen=True, slots=True)
class AnswerCandidate:
    """A span of the passage, by characters, and the sum of its start and end logits."""

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class AnswerPrediction:
    """The answer, empty for none, and what it was chosen from."""

    text: str
    candidates: tuple[AnswerCandidate, ...] = ()
    """The best spans, best first."""
    null_margin: float = 0.0
    """Score of "no answer" minus that of the best span; no answer is predicted where it exceeds the threshold."""


@dataclass(frozen=True, kw_only=True)
class QaOptions(TaskOptions):
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


class QuestionAnswering(TaskType[QaExample, AnswerPrediction, QaArrays, QaOptions]):
    """A span of a passage for each question."""

    head = "qa"
    metrics = ("f1", "exact_match")
    purpose = "questions on passages"
    arrays_type = QaArrays
    options_type = QaOptions
    spec_fields = frozenset()
    recipe_fields = frozenset({"doc_stride", "max_query_length", "max_answer_length"})
    request_keys = ("question", "context")
    own_layout = "SQuAD's JSON (.json)"
    example_request: ClassVar[Mapping[str, Any]] = {
        "question": "Where did she live?",
        "context": "Ada Lovelace lived in London.",
    }
    splits_long_examples = True
    usual_max_seq_length = 384

    def reader(self, spec: TaskSpec, labels: tuple[str, ...] | None, known: KnownTask | None = None) -> SquadReader:
        """The reader of SQuAD's JSON, and of tables of questions."""
        return SquadReader()

    def unlabeled_reader(self, path: str) -> SquadReader | None:
        """The reader of SQuAD's JSON, by the file's ending."""
        return SquadReader().without_labels() if plain_name(path).endswith(".json") else None

    def has_unanswerable(self, examples: Iterable[QaExample]) -> bool:
        """Whether some question has no answer."""
        return any(not example.answers for example in examples)

    def label_names(self, example: QaExample) -> tuple[str, ...]:
        """Whether there is an answer."""
        return ("answered" if example.answers else "without an answer",)

    def split_row(self, spec: TaskSpec, example: QaExample) -> Mapping[str, Any]:
        """The question in the fields of SQuAD."""
        answers = [{"text": answer.text, "answer_start": answer.start} for answer in example.answers]
        return {"id": example.id, "question": example.question, "context": example.context, "answers": answers}

    def split_text(self, example: QaExample) -> str:
        """The passage: questions on the same one are answered from what was learned of it."""
        return example.context

    def windows(
        self, task: TaskDefinition, examples: Sequence[QaExample], tokenizer: Tokenizer, options: QaOptions
    ) -> Windows[QaArrays]:
        """Every question before its passage, a long passage in windows that overlap."""
        return build_qa_windows(
            examples, tokenizer, options.max_seq_length, options.doc_stride, options.max_query_length
        )

    def decode(
        self,
        task: TaskDefinition,
        features: Features[QaArrays],
        examples: Sequence[QaExample],
        outputs: Outputs,
        options: QaOptions,
    ) -> list[AnswerPrediction]:
        """The best span over all windows of a question, or no answer where that may be: (T, 2)."""
        if outputs.ndim != 2 or outputs.shape[1] != 2:
            raise DataError(
                f"the outputs have the shape {outputs.shape}; question answering is decoded from "
                "(start_logits, end_logits), two columns"
            )
        decoded = decode_spans(
            outputs[:, 0],
            outputs[:, 1],
            features.head_arrays.offsets,
            features.cu_seqlens,
            features.example_index,
            max_answer_length=options.max_answer_length,
        )
        answers = []
        for question, found in zip(examples, decoded, strict=True):
            candidates = tuple(
                AnswerCandidate(question.context[span.start : span.end], span.start, span.end, span.score)
                for span in found.spans
            )
            answers.append(AnswerPrediction(candidates[0].text if candidates else "", candidates, found.null_margin))
        return _with_null_threshold(answers, options.null_threshold) if task.unanswerable else answers

    def score(
        self, task: TaskDefinition, examples: Sequence[QaExample], predictions: Sequence[AnswerPrediction]
    ) -> dict[str, float]:
        """Exact match and F1 as SQuAD's script counts them."""
        texts = {question.id: answer.text for question, answer in zip(examples, predictions, strict=True)}
        return squad_scores(texts, {question.id: _gold_texts(question) for question in examples})

    def baseline(
        self, task: TaskDefinition, learned: Sequence[QaExample], examples: Sequence[QaExample]
    ) -> list[AnswerPrediction]:
        """No answer where that may be; else the passage's first words, as many as half of the answers have."""
        if task.unanswerable:
            return [AnswerPrediction("")] * len(examples)
        num_words = int(median(len(e.answers[0].text.split()) for e in learned if e.answers))
        return [AnswerPrediction(" ".join(question.context.split()[:num_words])) for question in examples]

    def row(self, task: TaskDefinition, example: QaExample, prediction: AnswerPrediction) -> dict[str, Any]:
        """The question with what stands around its answer, the answer beside all right ones, its scores, its rivals."""
        gold = _gold_texts(example)
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

    def wrongness(self, task: TaskDefinition, example: QaExample, prediction: AnswerPrediction) -> float:
        """Difference of the answer's F1 from 1."""
        return 1.0 - answer_scores(prediction.text, _gold_texts(example), unanswerable=task.unanswerable)[1]

    def breakdown(
        self, task: TaskDefinition, examples: Sequence[QaExample], predictions: Sequence[AnswerPrediction]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """`questions`: those with and those without an answer, and how many of them were answered, rightly or not."""
        rows = []
        for kind, is_answerable in (("with an answer", True), ("without an answer", False)):
            chosen = [
                pair for pair in zip(examples, predictions, strict=True) if bool(pair[0].answers) == is_answerable
            ]
            scores = [answer_scores(p.text, _gold_texts(e), unanswerable=task.unanswerable) for e, p in chosen]
            if chosen:
                rows.append(
                    {
                        "questions": kind,
                        "number": len(chosen),
                        "answered": sum(bool(prediction.text) for _, prediction in chosen),
                        "exact_match": fmean(exact for exact, _ in scores),
                        "f1": fmean(f1 for _, f1 in scores),
                    }
                )
        return {"questions": rows}

    def decisions(self, prediction: AnswerPrediction) -> Sequence[object]:
        """List the text of the predicted answer alone."""
        return [prediction.text]

    def calibrate(
        self,
        task: TaskDefinition,
        features: Features[QaArrays],
        examples: Sequence[QaExample],
        outputs: Outputs,
        options: QaOptions,
        predictions: Sequence[AnswerPrediction],
    ) -> tuple[QaOptions, list[AnswerPrediction]]:
        """The null threshold with the best F1 (SQuAD 2.0 tunes it on validation), where there may be no answer."""
        if not task.unanswerable:
            return options, list(predictions)
        answered, null = [], []
        for question, prediction in zip(examples, predictions, strict=True):
            gold = _gold_texts(question)
            best = prediction.candidates[0].text if prediction.candidates else ""
            answered.append(answer_scores(best, gold, unanswerable=True)[1])
            null.append(answer_scores("", gold, unanswerable=True)[1])
        margins = np.array([prediction.null_margin for prediction in predictions])
        threshold = tune_null_threshold(margins, np.array(answered), np.array(null))
        return replace(options, null_threshold=threshold), _with_null_threshold(predictions, threshold)

    def example_of(self, task: TaskDefinition, request: Request) -> QaExample:
        """A question and its passage."""
        return QaExample(request.id, request.text("question"), request.text("context"))

    def answer(self, task: TaskDefinition, prediction: AnswerPrediction) -> dict[str, Any]:
        """The answer, and the best spans."""
        candidates = [asdict(candidate) for candidate in prediction.candidates[:_NUM_ANSWERED]]
        return {"answer": prediction.text, "candidates": candidates}


def _passage_around(question: QaExample) -> str:
    """Part of the passage around the first right answer, or its beginning: with it a mistake can be understood."""
    answer = question.answers[0] if question.answers else None
    middle = 0 if answer is None else answer.start + len(answer.text) // 2
    begin = max(0, min(middle - _PASSAGE_CHARACTERS // 2, len(question.context) - _PASSAGE_CHARACTERS))
    end = begin + _PASSAGE_CHARACTERS
    return ("…" if begin else "") + question.context[begin:end] + ("…" if end < len(question.context) else "")


def _gold_texts(question: QaExample) -> list[str]:
    return [answer.text for answer in question.answers]


def _with_null_threshold(predictions: Sequence[AnswerPrediction], threshold: float) -> list[AnswerPrediction]:
    """The answers, with "no answer" predicted where its margin exceeds the threshold."""
    return [
        replace(p, text=p.candidates[0].text if p.candidates and p.null_margin <= threshold else "")
        for p in predictions
    ]
