"""Questions on passages: SQuAD's JSON (1.1 and 2.0), and rows of context, question and answers as exports have them.

answers    a list of {text, answer_start}, an object of lists, a text, a list of texts; a table holds them as text
start      a column of its own beside a text; without one the answer is searched in its passage
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.base.errors import TaskDataError
from orchestrator.storage.text_lines import HALF_A_PAIR, has_half_a_pair, json_problem
from orchestrator.tasks.cell_values import read_flag, read_number, unpack_cell
from orchestrator.tasks.table_files import read_records, table_name
from orchestrator.tasks.text_files import BadRecords, LabeledReader, read_decompressed

_CONTEXT = ("context", "passage", "paragraph", "document", "text")
_QUESTION = ("question", "query")
_ID = ("id", "qid", "question_id")
_ANSWERS = ("answers", "answer", "answer_text", "answers.text")
_START = ("answer_start", "answers.answer_start", "start")
_END = ("answer_end", "end")


@dataclass(frozen=True, slots=True)
class Answer:
    """A span of a passage: its text and the character it starts at."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class QaExample:
    """A question about a passage; no answers where the passage does not hold one."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()

    @property
    def answer_texts(self) -> list[str]:
        return [answer.text for answer in self.answers]


@dataclass(frozen=True)
class SquadReader(LabeledReader[QaExample]):
    """Reads questions; an answer that does not stand where it says is taken from its nearest occurrence."""

    def read(self, path: str, bad: BadRecords) -> Iterator[QaExample]:
        """The file's questions in order; unanswerable ones (2.0) have no answers."""
        seen: set[str] = set()
        for number, (place, record) in enumerate(_read_questions(path, bad)):
            try:
                example, repairs = read_question(record, str(number), self.labeled)
                if example.id in seen:
                    raise ValueError(f"id {example.id!r} stands there twice")
            except ValueError as error:
                bad.found(place, str(error))
                continue
            seen.add(example.id)
            if repairs:
                bad.repaired(place, repairs[0])
            yield example


def are_question_columns(names: Iterable[str]) -> bool:
    """Whether a table has the columns of questions on passages with their answers, or of passages with `qas`."""
    found = {name.lower() for name in names}
    has_context, has_question, has_answer, has_start, has_end = (
        not found.isdisjoint(some) for some in (_CONTEXT, _QUESTION, _ANSWERS, _START, _END)
    )
    return has_context and ("qas" in found or (has_question and (has_answer or (has_start and has_end))))


def read_question(record: object, name: str, labeled: bool = True) -> tuple[QaExample, list[str]]:
    """The example of a record in any layout, and how its answers were repaired.

    Args:
        name: the question's id where the record has none.

    Raises: ValueError, saying what is wrong with the record.
    """
    if not isinstance(record, Mapping):
        raise ValueError("it is no object; a question has context, question and answers")
    context, question, own_id = (_first(record, names) for names in (_CONTEXT, _QUESTION, _ID))
    for key, text in (("context", context), ("question", question)):
        if not isinstance(text, str):
            raise ValueError(f"it has no text {key!r}; a question has context, question and answers")
    question_id = str(name if own_id is None else own_id)
    wanted = _answers(record, context) if labeled and not _is_impossible(record) else []
    if has_half_a_pair([question_id, question, context, wanted]):
        raise ValueError(HALF_A_PAIR)
    answers, repairs = [], []
    for text, start in wanted:
        answer = find_answer(context, text, start)
        if answer is None:
            raise ValueError(f"the answer {text!r} of question {question_id!r} is not in its passage")
        if answer.start != start:
            instead = "it has no answer_start" if start is None else f"not from answer_start {start}"
            repairs.append(f"{text!r} is taken from character {answer.start}, {instead}")
        answers.append(answer)
    return QaExample(question_id, question, context, tuple(answers)), repairs


def find_answer(context: str, text: str, start: int | None) -> Answer | None:
    """The answer where it says it stands, else at its occurrence nearest to there, None when it has none.

    Without a start it is the first one.
    """
    if not text:
        return None
    if start is not None and start >= 0 and context.startswith(text, start):
        return Answer(text, start)
    wanted = max(start or 0, 0)
    places = [p for p in (context.rfind(text, 0, wanted + len(text)), context.find(text, wanted)) if p >= 0]
    return Answer(text, min(places, key=lambda place: abs(place - (start or 0)))) if places else None


def _answers(record: Mapping[str, Any], context: str) -> list[tuple[str, int | None]]:
    """Texts and starts of a record's answers; an empty text is none, and offsets alone say one. Raises: ValueError."""
    keys = {key.lower() for key in record}
    if keys.isdisjoint(_ANSWERS) and not keys.isdisjoint(_END):
        start, end = (read_number(_first(record, names)) for names in (_START, _END))
        return [] if start is None or end is None or start < 0 else [(context[int(start) : int(end)], int(start))]
    if keys.isdisjoint(_ANSWERS):
        raise ValueError("it has no 'answers'; a question has context, question and answers")
    found: Any = unpack_cell(_first(record, _ANSWERS))
    starts: Any = unpack_cell(_first(record, _START))
    if isinstance(found, Mapping):
        found, starts = found.get("text"), _first(found, _START)
    elif isinstance(found, list) and found and all(isinstance(answer, Mapping) for answer in found):
        found, starts = [answer.get("text") for answer in found], [_first(answer, _START) for answer in found]
    texts = found if isinstance(found, list) else [found]
    starts = starts if isinstance(starts, list) else [starts] * len(texts)
    try:
        pairs = [(text, None if at in (None, "") else int(float(at))) for text, at in zip(texts, starts, strict=True)]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"its answer_start {str(starts)[:80]} is not a whole number for each answer") from None
    pairs = [(text, start) for text, start in pairs if text != "" and (text, start) != (None, -1)]
    if not all(isinstance(text, str) for text, _ in pairs):
        raise ValueError("its answers are neither texts nor objects with text and answer_start")
    return pairs


def _first(record: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The value of the first of some keys, which may be written in capitals; None without one."""
    spelled = {key.lower(): value for key, value in record.items()}
    return next((spelled[name] for name in names if name in spelled), None)


def _is_impossible(record: Mapping[str, Any]) -> bool:
    """Whether a question is said to have no answer. Raises: ValueError for a value that is no truth value."""
    try:
        return read_flag(_first(record, ("is_impossible",))) or False
    except ValueError:
        raise ValueError(f"is_impossible is {_first(record, ('is_impossible',))!r}; write true or false") from None


def _read_questions(path: str, bad: BadRecords) -> Iterator[tuple[str, Any]]:
    """Place and record of every question of a file."""
    content = None if table_name(path) else _json_of(path)
    if content is None:
        items = read_records(path, bad)
    else:
        listed = content.get("data") if isinstance(content, dict) else content
        if not isinstance(listed, list):
            raise TaskDataError(f'{path} is not laid out as SQuAD: it must be a list, or an object with a list "data"')
        items = ((f"data[{number}]", item) for number, item in enumerate(listed))
    for place, item in items:
        if not (isinstance(item, dict) and item.keys() == {"header"}):  # the first line of MRQA's files
            yield from _questions_within(item, place)


def _json_of(path: str) -> Any:
    """The JSON of a whole file; None where each line is a value."""
    try:
        return json.loads(read_decompressed(path))
    except UnicodeDecodeError as error:
        raise TaskDataError(f"{path}: byte {error.start + 1} is not UTF-8; fetch the file again") from error
    except (ValueError, RecursionError) as error:
        if getattr(error, "msg", "") == "Extra data":
            return None
        raise TaskDataError(
            f"{path}, line {getattr(error, 'lineno', 1)}: not JSON ({json_problem(error)}); a qa task reads SQuAD's "
            "JSON, or tables with context, question and answers"
        ) from error


def _questions_within(item: Any, place: str, context: Any = None) -> Iterator[tuple[str, Any]]:
    """Place and record of the questions of an article or a passage, each with its passage; of a question itself."""
    if not isinstance(item, dict):
        yield place, item
        return
    own = _first(item, _CONTEXT)
    context = context if own is None else own
    for key in ("paragraphs", "qas"):
        if isinstance(item.get(key), list):
            for number, part in enumerate(item[key]):
                yield from _questions_within(part, f"{place}.{key}[{number}]", context)
            return
    yield place, item if context is None else {**item, "context": context}
