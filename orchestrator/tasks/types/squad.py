"""SQuAD's JSON, versions 1.1 and 2.0: articles of paragraphs, each a passage with its questions."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from orchestrator.errors import TaskDataError
from orchestrator.storage.text_lines import HALF_A_PAIR, has_half_a_pair
from orchestrator.tasks.readers import Reader
from orchestrator.tasks.text_files import BadRecords, plain_name, read_decompressed

_TRUTH_VALUES = {"true": True, "false": False, "1": True, "0": False}
"""Truth values as spreadsheets and other languages write them, in lower case."""


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


@dataclass(frozen=True)
class SquadReader(Reader[QaExample]):
    """Reads questions; an answer that does not stand where it says is taken from its nearest occurrence."""

    labeled: bool = True
    """Whether answers are read."""

    def read(self, path: str, bad: BadRecords) -> Iterator[QaExample]:
        """The file's questions in order; unanswerable ones (2.0) have no answers."""
        seen: set[str] = set()
        for place, context, record in _questions(path, bad):
            try:
                question_id, question = str(record["id"]), record["question"]
                raw = record["answers"] if self.labeled and not _is_impossible(record) else ()
                answers = [(str(answer["text"]), int(answer["answer_start"])) for answer in raw if answer["text"] != ""]
            except KeyError as error:
                bad.found(place, f"it has no {error.args[0]!r}; a question has id, question and answers")
                continue
            except (TypeError, ValueError, AttributeError):
                bad.found(place, "its answers are no list of objects with text and answer_start, or it is no object")
                continue
            except TaskDataError as error:
                bad.found(place, str(error))
                continue
            found = [find_answer(context, text, start) for text, start in answers]
            if has_half_a_pair([question_id, question, answers]):
                bad.found(place, HALF_A_PAIR)
            elif question_id in seen:
                bad.found(place, f"id {question_id!r} stands there twice")
            elif not isinstance(question, str):
                bad.found(place, f"the question of {question_id!r} is not text")
            elif None in found:
                lost = answers[found.index(None)][0]
                bad.found(place, f"the answer {lost!r} of question {question_id!r} is not in its passage")
            else:
                seen.add(question_id)
                kept = tuple(answer for answer in found if answer)
                moves = [(a, start) for a, (_, start) in zip(kept, answers, strict=True) if a.start != start]
                if moves:
                    doubt, moved, start = max(((_doubt(context, *move), *move) for move in moves), key=lambda m: m[0])
                    what = f"{moved.text!r} is taken from character {moved.start}, not from answer_start {start}"
                    bad.mended(place, what, doubt)
                yield QaExample(question_id, question, context, kept)

    def without_labels(self) -> Self:
        """A reader of questions and passages alone."""
        return replace(self, labeled=False)


def find_answer(context: str, text: str, start: int) -> Answer | None:
    """The answer where it says it stands, else at its occurrence nearest to there, None when it has none."""
    if not text:
        return None
    if start >= 0 and context.startswith(text, start):
        return Answer(text, start)
    before = context.rfind(text, 0, max(start, 0) + len(text))
    after = context.find(text, max(start, 0))
    places = [place for place in (before, after) if place >= 0]
    return Answer(text, min(places, key=lambda place: abs(place - start))) if places else None


def _doubt(context: str, answer: Answer, start: int) -> float:
    """Characters that an answer was moved; infinity where another occurrence is as near."""
    other = 2 * start - answer.start
    is_tie = other >= 0 and context.startswith(answer.text, other)
    return math.inf if is_tie else abs(answer.start - start)


def _is_impossible(record: dict[str, Any]) -> bool:
    """Whether a question is said to have no answer. Raises: TaskDataError for a value that is no truth value."""
    value = record.get("is_impossible") or False
    said = _TRUTH_VALUES.get(value.strip().lower()) if isinstance(value, str) else value
    if said not in (True, False):
        raise TaskDataError(f"is_impossible is {value!r}; write true or false")
    return bool(said)


def _questions(path: str, bad: BadRecords) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Place, passage and record of every question."""
    try:
        content = json.loads(read_decompressed(path))
    except UnicodeDecodeError as error:
        raise TaskDataError(f"{path}: byte {error.start + 1} is not UTF-8; fetch the file again") from error
    except json.JSONDecodeError as error:
        remedy = "fetch the file again" if plain_name(path).endswith(".json") else "a qa task reads SQuAD's JSON"
        raise TaskDataError(f"{path}, line {error.lineno}: not JSON ({error.msg}); {remedy}") from error
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        raise TaskDataError(f'{path} is not laid out as SQuAD: it must be an object with a list "data"')
    for i, article in enumerate(content["data"]):
        for j, paragraph in enumerate(_items(article, "paragraphs", f"data[{i}]", bad)):
            place = f"data[{i}].paragraphs[{j}]"
            context = paragraph.get("context") if isinstance(paragraph, dict) else None
            if not isinstance(context, str):
                bad.found(place, "no context")
                continue
            if has_half_a_pair(context):
                bad.found(place, f"its context {HALF_A_PAIR}")
                continue
            for k, record in enumerate(_items(paragraph, "qas", place, bad)):
                yield f"{place}.qas[{k}]", context, record


def _items(parent: Any, key: str, place: str, bad: BadRecords) -> list[Any]:
    items = parent.get(key) if isinstance(parent, dict) else None
    if isinstance(items, list):
        return items
    bad.found(place, f"no list {key!r}")
    return []
