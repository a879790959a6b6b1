"""Sentences of documents. Alone: pytest tests/orchestrator/tasks/types/test_sentence_selection.py"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_core.errors import DataError
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import InputError, SpecError, TaskDataError
from orchestrator.tasks.types import TASK_TYPES
from orchestrator.tasks.types.requests import Request
from orchestrator.tasks.types.sentence_selection import SentencesExample, SentencesPrediction, SentencesTable
from tests.orchestrator.tasks.definitions import decode, define, examples_of, features_of, window_texts, write_records

HEAD = TASK_TYPES["sentence_selection"]
TASK = define("sentence_selection")
TABLE = SentencesTable("sentences", None, "selected")
WITH_QUERY = SentencesTable("sentences", "query", "selected")
RECORD: dict[str, Any] = {"sentences": ["One.", "Two.", "Three."], "query": "Which?", "selected": [2]}


@pytest.mark.parametrize("selected", [[2, 0, 2], [True, False, True], [], [False, False, False]])
def test_sentences_are_selected_by_number_or_by_true_and_false(tmp_path: Path, selected: list[object]) -> None:
    places = (0, 2) if any(selected) else ()
    record = {**RECORD, "selected": selected}
    for path in (write_records(tmp_path / "a.jsonl", record), write_records(tmp_path / "a.parquet", record)):
        assert examples_of(TABLE, path) == [SentencesExample("0", ("One.", "Two.", "Three."), None, places)]


def test_a_query_may_be_null_or_empty(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.jsonl", RECORD, {**RECORD, "query": None}, {**RECORD, "query": ""})
    assert [example.query for example in examples_of(WITH_QUERY, path)] == ["Which?", None, None]


BROKEN: dict[str, list[Any]] = {
    "sentences": [[], "One. Two.", ["One.", 2]],
    "query": [5],
    "selected": [[3], [-1], [True, False], [0, True], None, ["One."]],
}


@pytest.mark.parametrize(("field", "value"), [(name, value) for name, values in BROKEN.items() for value in values])
def test_a_broken_document_is_named_or_left_out(tmp_path: Path, field: str, value: object) -> None:
    path = write_records(tmp_path / "a.jsonl", RECORD, {**RECORD, field: value})
    with pytest.raises(TaskDataError, match=f"line 2: {field}"):
        examples_of(WITH_QUERY, path)
    assert len(examples_of(WITH_QUERY, path, "skip")) == 1


def test_a_long_document_is_windows_of_whole_sentences_each_after_the_query(tokenizer: Tokenizer) -> None:
    sentences = ("the river", "a house", "river " * 20, "the")
    examples = [SentencesExample("0", sentences, "the house the house"), SentencesExample("1", ("a",), None, (0,))]
    features = features_of("sentence_selection", (), examples, tokenizer, max_seq_length=12, max_query_length=2)
    assert window_texts(features, tokenizer) == [
        "[CLS] the house [SEP] [CLS] the river [SEP] [CLS] a house [SEP]",
        "[CLS] the house [SEP] [CLS] " + "river " * 6 + "[SEP]",
        "[CLS] the house [SEP] [CLS] the [SEP]",
        "[CLS] a [SEP]",
    ]
    assert features.example_index.tolist() == [0, 0, 0, 1]
    assert features.token_type_ids[:12].tolist() == [0] * 4 + [1] * 4 + [0] * 4
    arrays = features.head_arrays
    assert np.flatnonzero(arrays.is_sentence_start).tolist() == [4, 8, 16, 28, 31]
    assert arrays.token_labels[arrays.is_sentence_start].tolist() == [-100] * 4 + [1]
    assert (features.counts["num_truncated"], features.counts["num_sentences"]) == (1, 5)


def test_a_query_must_leave_room(tokenizer: Tokenizer) -> None:
    example = SentencesExample("0", ("the river",), "the house the house")
    with pytest.raises(SpecError, match=r"max_seq_length 8 leaves no room .* a query of 4 tokens; .*max_query_length"):
        features_of("sentence_selection", (), [example], tokenizer, max_seq_length=8)


def test_sentences_above_one_half_are_selected(tokenizer: Tokenizer) -> None:
    examples = [SentencesExample("0", ("a", "the", "a"), "the river"), SentencesExample("1", ("a",))]
    features = features_of("sentence_selection", (), examples, tokenizer, max_seq_length=12)
    outputs = np.full((len(features.input_ids), 1), 9.0, np.float32)
    outputs[features.head_arrays.is_sentence_start, 0] = [0.0, np.log(3.0), -900.0, 900.0]
    assert decode(TASK, features, examples, outputs) == [
        SentencesPrediction((1,), (0.5, pytest.approx(0.75), 0.0)),
        SentencesPrediction((0,), (1.0,)),
    ]
    with pytest.raises(DataError, match="3 outputs for 20 tokens"):
        decode(TASK, features, examples, np.zeros(3))


def test_scores_count_sentences_and_rank_those_of_a_document() -> None:
    examples = [
        SentencesExample("0", ("a", "b", "c"), None, (2,)),
        SentencesExample("1", ("a", "b"), None, (0, 1)),
        SentencesExample("2", ("a",), None, ()),
    ]
    predictions = [
        SentencesPrediction((0, 2), (0.9, 0.3, 0.6)),
        SentencesPrediction((), (0.2, 0.2)),
        SentencesPrediction((0,), (0.7,)),
    ]
    assert HEAD.target.score(TASK, examples, predictions) == {
        "f1": pytest.approx(2 / 6),
        "precision": pytest.approx(1 / 3),
        "recall": pytest.approx(1 / 3),
        "mrr": pytest.approx((1 / 2 + 1) / 2),
        "precision_at_1": 0.5,
    }
    assert set(HEAD.target.score(TASK, examples[2:], [SentencesPrediction((), (0.1,))]).values()) == {0.0}


def test_the_baseline_is_the_lead_as_long_as_half_of_the_selections() -> None:
    learned = [SentencesExample("0", ("a",) * 5, None, places) for places in ((0,), (1, 2), (0, 1, 2, 3))]
    examples = [SentencesExample("0", ("a",) * 3), SentencesExample("1", ("a",))]
    long, short = HEAD.target.baseline(TASK, learned, examples)
    assert (long.selected, short.selected) == ((0, 1), (0,))
    assert [long.rank([place]) for place in range(3)] == [1, 2, 3]


def test_a_request_is_a_list_of_sentences_and_perhaps_a_query() -> None:
    keys = HEAD.request.keys
    assert HEAD.example_of(TASK, Request({"sentences": ["One."]}, 1, HEAD.head, keys)).query is None
    with pytest.raises(InputError, match="line 4: sentences must be a list of texts"):
        HEAD.example_of(TASK, Request({"sentences": []}, 4, HEAD.head, keys))
