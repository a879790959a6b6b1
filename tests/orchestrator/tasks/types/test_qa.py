"""Question answering: SQuAD's JSON, windows, answers. Alone: pytest tests/orchestrator/tasks/types/test_qa.py"""

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.base.errors import TaskDataError
from orchestrator.specs import TaskSpec
from orchestrator.tasks.feature_cache import prepare_features, unread_notes
from orchestrator.tasks.features import Features, passage_windows
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.scoring import decode_fitted, score
from orchestrator.tasks.task import Task
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types.qa import AnswerPrediction, whole_letters
from orchestrator.tasks.types.squad import Answer, QaExample, SquadReader, are_question_columns, find_answer
from tests.orchestrator.tasks.definitions import (
    decode,
    examples_of,
    features_of,
    options_of,
    read,
    write,
    write_records,
)

CONTEXT = "the cat saw the cat and the ünruly cat"


def question(question_id: str = "q", **more: Any) -> dict[str, Any]:
    return {"id": question_id, "question": "Who?", "answers": [{"text": "cat", "answer_start": 16}], **more}


def read_json(path: Path, data: Any, policy: str = "error") -> tuple[list[QaExample], BadRecords]:
    return read(SquadReader(), write(path, data if isinstance(data, str) else json.dumps(data)), policy)


def layout(*questions: Any) -> dict[str, Any]:
    return {"version": "1.1", "data": [{"title": "T", "paragraphs": [{"context": CONTEXT, "qas": list(questions)}]}]}


def test_questions_are_read_in_order(tmp_path: Path) -> None:
    unanswerable = question("b", is_impossible=True, answers=[], plausible_answers=[{"text": "x", "answer_start": 0}])
    examples, bad = read_json(tmp_path / "a.json", layout(question("a"), unanswerable, question("c", answers=[])))
    assert examples == [
        QaExample("a", "Who?", CONTEXT, (Answer("cat", 16),)),
        QaExample("b", "Who?", CONTEXT),
        QaExample("c", "Who?", CONTEXT),
    ]
    assert (bad.count, bad.num_repaired) == (0, 0)


PLACES = {4: ("cat", (4, 5, 0, -7)), 16: ("cat", (15,)), 35: ("cat", (999,)), 28: ("ünruly", (27,))}


@pytest.mark.parametrize("expected", PLACES)
def test_an_answer_is_found_nearest_to_where_it_should_be(expected: int) -> None:
    text, starts = PLACES[expected]
    assert {find_answer(CONTEXT, text, start) for start in starts} == {Answer(text, expected)}
    assert find_answer(CONTEXT, "dog", 4) is find_answer(CONTEXT, "", 4) is None


FLAT = {"context": CONTEXT, "question": "Who?"}


@pytest.mark.parametrize(
    ("fields", "starts", "num_repaired"),
    [
        ({"answers": {"text": ["cat", "ünruly"], "answer_start": [16, 28]}}, [16, 28], 0),
        ({"answers": "{'text': array(['cat', 'ünruly'], dtype=object), 'answer_start': array([16, 28])}"}, [16, 28], 0),
        ({"answers": '[{"text": "cat", "start": 16}]'}, [16], 0),
        ({"answers.text": "['cat']", "answers.answer_start": "[16]"}, [16], 0),
        ({"answer_text": "cat", "answer_start": "16.0"}, [16], 0),
        ({"answer": {"text": "cat", "answer_start": 16}, "is_impossible": False}, [16], 0),
        ({"answer": "cat", "answer_start": ""}, [4], 1),
        ({"Answer": "cat", "Answer_Start": 16, "is_impossible": "0.0"}, [16], 0),
        ({"answer_start": 16, "answer_end": 19}, [16], 0),
        ({"answers": ["ünruly", "cat"]}, [28, 4], 1),
        ({"answer": "", "answer_start": "-1"}, [], 0),
        ({"answers": {"text": [], "answer_start": []}}, [], 0),
        ({"answers": {"text": [None], "answer_start": [-1]}}, [], 0),
    ],
)
def test_answers_of_a_row_are_read_in_each_layout(
    tmp_path: Path, fields: dict[str, Any], starts: list[int], num_repaired: int
) -> None:
    record = FLAT | fields
    assert are_question_columns(record)
    write_records(tmp_path / "a.parquet", record)
    write_records(tmp_path / "a.jsonl", record)
    for name, data in (("a.json", [record]), ("b.json", {"data": [record]}), ("c.json", f"{json.dumps(record)}\n" * 2)):
        (tmp_path / name).write_text(data if isinstance(data, str) else json.dumps(data))
    paths = list(tmp_path.iterdir())
    if all(isinstance(value, str) for value in fields.values()):
        with (tmp_path / "a.csv").open("w", newline="") as file:
            csv.writer(file).writerows([record, record.values()])
        paths.append(tmp_path / "a.csv")
    for path in paths:
        examples, bad = read(SquadReader(), path)
        assert [answer.start for answer in examples[0].answers] == starts, path
        assert all(CONTEXT.startswith(answer.text, answer.start) for answer in examples[0].answers)
        assert (examples[0].id, bad.num_repaired) == ("0", num_repaired * len(examples))
        assert examples_of(SquadReader().without_labels(), path)[0].answers == ()


def test_the_first_repaired_answer_is_told(tmp_path: Path) -> None:
    right, moved, far = (
        question(name, answers=[{"text": "cat", "answer_start": n}]) for name, n in zip("rmf", (16, 5, 99), strict=True)
    )
    _, bad = read_json(tmp_path / "a.json", layout(right, moved, far))
    assert bad.num_repaired == 2
    assert "qas[1]" in bad.first_repair


def test_a_question_without_an_answer_is_known_in_each_spelling(tmp_path: Path) -> None:
    answered = [question(str(number), is_impossible=said) for number, said in enumerate(("false", "False", 0, None))]
    not_answered = [question(is_impossible="true"), question("r", answers=[{"text": "", "answer_start": -1}])]
    examples, bad = read_json(tmp_path / "a.json", layout(*answered, *not_answered))
    assert [bool(example.answers) for example in examples] == [True] * 4 + [False] * 2
    assert bad.num_repaired == 0


BROKEN = [
    question("a"),
    question(question="Wh\ud83d?"),
    question(question=None),
    {"id": "q", "question": "Who?"},
    "cat",
]
BROKEN += [question(answers=[{"text": text, "answer_start": at}]) for text, at in (("dog", 1), ("cat", "here"))]
BROKEN += [question(answers=found) for found in ({"text": ["cat", "cat"], "answer_start": [4]}, [5], None)]


@pytest.mark.parametrize("broken", [*BROKEN, question(is_impossible="perhaps")])
def test_a_broken_question_is_named_by_its_place_or_counted(tmp_path: Path, broken: Any) -> None:
    data = layout(question("a"), broken, question("c"))
    with pytest.raises(TaskDataError, match=r"a\.json, data\[0\]\.paragraphs\[0\]\.qas\[1\]: "):
        read_json(tmp_path / "a.json", data)
    examples, bad = read_json(tmp_path / "a.json", data, "skip")
    assert [example.id for example in examples] == ["a", "c"]
    assert bad.count == 1


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ('{"data": [\n{"', "line 2"),
        ({"data": "x"}, '"data"'),
        ({"data": [{"title": "T"}]}, r"data\[0\]: .*'context'"),
        ({"data": [{"paragraphs": [{"qas": [question()]}]}]}, r"data\[0\]\.paragraphs\[0\]\.qas\[0\]: .*'context'"),
        ({"data": [{"paragraphs": [{"context": "\ud83d", "qas": [question()]}]}]}, r"qas\[0\]: .*surrogate"),
        ({"data": [{"paragraphs": [{"context": "x"}]}]}, r"data\[0\]\.paragraphs\[0\]: .*'question'"),
    ],
)
def test_another_layout_is_named(tmp_path: Path, data: Any, place: str) -> None:
    with pytest.raises(TaskDataError, match=place):
        read_json(tmp_path / "a.json", data)


def test_what_holds_no_questions_is_told(tmp_path: Path) -> None:
    others: list[Iterable[str]] = [FLAT, ("question", "answer"), ("context", "answers"), ("text", "label")]
    assert not any(map(are_question_columns, others))
    with pytest.raises(TaskDataError, match=r"line 1: .*SQuAD"):
        read(SquadReader(), write(tmp_path / "a.txt", "Who wrote it?\n"))


CONTEXT_QA = "Ada Lovelace wrote to Charles Babbage in London about the engine. It rained for nine days near Oslo."


def answer_at(text: str) -> Answer:
    return Answer(text, CONTEXT_QA.index(text))


def read_answers(features: Features, contexts: Sequence[str]) -> list[str]:
    """The text between start and end position of each window, empty where they point at [CLS]."""
    arrays, begins = features.head_arrays, features.cu_seqlens[:-1]
    first = arrays.offsets[begins + arrays.start_positions, 0]
    last = arrays.offsets[begins + arrays.end_positions, 1]
    spans = zip(features.example_index, first, last, strict=True)
    return [contexts[example][start:end] if start >= 0 else "" for example, start, end in spans]


def test_windows_of_a_passage_hold_the_question_and_only_a_whole_answer(tokenizer: Tokenizer) -> None:
    example = QaExample("0", "who wrote about it", CONTEXT_QA, (answer_at("Charles Babbage"),))
    features = features_of("qa", (), [example], tokenizer, max_seq_length=16, doc_stride=4, max_query_length=3)
    assert features.num_windows > 2
    assert features.lengths.max() <= 16
    answers = read_answers(features, [CONTEXT_QA])
    assert set(answers) == {"Charles Babbage", ""}
    question = tokenizer.encode_ids(["who wrote about it"])[0][:3]
    for begin in features.cu_seqlens[:-1]:
        assert features.input_ids[begin : begin + 5].tolist() == [tokenizer.cls_id, *question, tokenizer.sep_id]
    on_passage = features.head_arrays.offsets[:, 0] >= 0
    assert (features.token_type_ids[on_passage] == 1).all()
    assert np.count_nonzero(features.token_type_ids) == np.count_nonzero(on_passage) + features.num_windows


def test_an_answer_that_is_whole_in_no_window_is_counted(tokenizer: Tokenizer) -> None:
    example = QaExample("0", "who", CONTEXT_QA, (Answer(CONTEXT_QA, 0),))
    short = features_of("qa", (), [example], tokenizer, max_seq_length=16, doc_stride=4, max_query_length=3)
    assert short.counts["num_unreachable"] == 1
    assert len(list(unread_notes(short))) == 1
    assert not list(unread_notes(features_of("qa", (), [example], tokenizer, max_seq_length=384)))


def test_a_special_token_in_a_passage_is_text(tokenizer: Tokenizer) -> None:
    written, apart = (QaExample("0", "Who?", f"Ada {mark} wrote") for mark in ("[SEP]", "[ SEP ]"))
    ids = [features_of("qa", (), [example], tokenizer).input_ids.tolist() for example in (written, apart)]
    assert ids[0] == ids[1]


@pytest.mark.parametrize(
    ("text", "span", "letters"),
    [
        ("साधु है", (0, 3), "साधु"),
        ("साधु है", (3, 4), "धु"),
        ("cafe\u0301 noir", (0, 4), "cafe\u0301"),
        ("ที่นี่", (0, 1), "ที่"),
        ("ක්\u200dෂ්", (0, 1), "ක්\u200dෂ්"),
        ("می\u200cخواهم", (0, 2), "می"),
        ("a\u200d b", (0, 1), "a"),
        ("e \u0301b", (0, 1), "e"),
    ],
)
def test_a_span_is_widened_to_whole_letters(text: str, span: tuple[int, int], letters: str) -> None:
    start, end = whole_letters(text, *span)
    assert text[start:end] == letters


@pytest.mark.parametrize("lowercase", [True, False])
def test_an_answer_is_found_with_the_marks_of_its_last_letter(lowercase: bool) -> None:
    context = "गुरु साधु cafe\u0301 ที่ है"
    tokenizer = train_wordpiece([context] * 4, vocab_size=200, lowercase=lowercase)
    texts = context.split()
    examples = [QaExample(text, "है", context, (Answer(text, context.index(text)),)) for text in texts]
    assert read_answers(features_of("qa", (), examples, tokenizer), [context] * len(texts)) == texts


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 20), st.integers(1, 30))
def test_passage_windows_cover_every_token_and_none_is_needless(num_tokens: int, room: int, stride: int) -> None:
    windows = list(passage_windows(num_tokens, room, stride))
    assert set().union(*(range(begin, end) for begin, end in windows)) == set(range(num_tokens))
    assert all(end - begin <= room for begin, end in windows)
    assert [end for _, end in windows] == sorted({end for _, end in windows})


@pytest.fixture
def questions(tmp_path: Path) -> Task:
    answer = {"text": "Charles Babbage", "answer_start": CONTEXT_QA.index("Charles")}
    qas = [
        {"id": "a", "question": "Who?", "answers": [answer]},
        {"id": "b", "question": "Who?", "answers": []},
        {"id": "c", "question": "Who?", "answers": [answer]},
    ]
    path = tmp_path / "dev-v2.0.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": CONTEXT_QA, "qas": qas}]}]}), encoding="utf-8")
    return load_task(TaskSpec(id="squad_v2", folder=str(tmp_path)))


def prepare(task: Task, tokenizer: Tokenizer, tmp_path: Path) -> Features:
    lengths = {"max_seq_length": 20, "doc_stride": 6, "max_query_length": 8}
    return prepare_features(task, "validation", tokenizer, options_of("qa", **lengths), str(tmp_path / "cache"))


def decode_questions(task: Task, features: Features[Any], **options: Any) -> list[AnswerPrediction]:
    return decode(task, features, task.examples("validation"), gold_logits(features), options_of("qa", **options))


def gold_logits(features: Features[Any]) -> np.ndarray:
    """Logits that point at the answer in every window that holds it, and weakly at [CLS]."""
    logits = np.zeros((2, len(features.input_ids)), np.float32)
    logits[:, features.cu_seqlens[:-1]] = 2.0
    for row, positions in zip(
        logits, (features.head_arrays.start_positions, features.head_arrays.end_positions), strict=True
    ):
        row[(features.cu_seqlens[:-1] + positions)[positions > 0]] = 5.0
    return logits.T


def test_answers_come_from_the_window_that_holds_them(questions: Task, tokenizer: Tokenizer, tmp_path: Path) -> None:
    features = prepare(questions, tokenizer, tmp_path)
    predictions = decode_questions(questions, features)
    assert [p.text for p in predictions] == ["Charles Babbage", "", "Charles Babbage"]
    assert [p.null_margin for p in predictions] == [-6.0, 4.0, -6.0]
    best = predictions[0].candidates[0]
    assert CONTEXT_QA[best.start : best.end] == best.text
    assert score(questions, "validation", predictions)["exact_match"] == 1.0


def test_an_answer_is_no_longer_than_asked(questions: Task, tokenizer: Tokenizer, tmp_path: Path) -> None:
    features = prepare(questions, tokenizer, tmp_path)
    answer = decode_questions(questions, features, max_answer_length=1, null_threshold=9.0)[0]
    assert answer.text in "Charles Babbage"
    assert len(tokenizer.encode_ids([answer.text])[0]) == 1


def test_a_threshold_decides_between_an_answer_and_none(questions: Task, tokenizer: Tokenizer, tmp_path: Path) -> None:
    features = prepare(questions, tokenizer, tmp_path)
    assert decode_questions(questions, features, null_threshold=4.0)[1].text != ""
    assert [p.text for p in decode_questions(questions, features, null_threshold=-7.0)] == ["", "", ""]
    given = options_of("qa", max_answer_length=20)
    examples = questions.examples("validation")
    options, tuned = decode_fitted(questions, features, examples, gold_logits(features), given)
    assert score(questions, "validation", tuned)["f1"] == 1.0
    assert -6.0 <= options.null_threshold < 4.0
    assert replace(options, null_threshold=0.0) == given


def test_every_question_is_answered_where_all_have_answers(
    questions: Task, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    features = prepare(questions, tokenizer, tmp_path)
    answerable = load_task(TaskSpec(id="squad", files={"validation": questions.file("validation")}))
    logits = np.zeros(len(features.input_ids))
    logits[features.cu_seqlens[:-1]] = 99.0
    predictions = decode(answerable, features, answerable.examples("validation"), np.stack([logits, logits], axis=1))
    assert all(isinstance(p, AnswerPrediction) and p.text for p in predictions)


def test_what_concerns_answers_alone_decides_no_window_and_the_context_of_a_sentence_does() -> None:
    assert options_of("ner", context="document").window_values() != options_of("ner").window_values()
    options = options_of("qa", max_answer_length=7, null_threshold=1.5)
    assert options.window_values() == options_of("qa").window_values()


@pytest.mark.parametrize("passage", ["context", "Passage", "document", "text"])
def test_rows_of_passages_with_lists_of_questions_are_read(tmp_path: Path, passage: str) -> None:
    asked = {"qid": "q", "question": "who?", "answers": ["cat"]}
    record = {passage: CONTEXT, "qas": [asked, {**asked, "qid": "r", "is_impossible": "True"}]}
    assert are_question_columns(record)
    path = write_records(tmp_path / "a.jsonl", {"header": {"dataset": "x"}}, record)
    assert [(e.id, e.answer_texts) for e in read(SquadReader(), path)[0]] == [("q", ["cat"]), ("r", [])]
