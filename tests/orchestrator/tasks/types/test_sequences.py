"""Types on whole texts; how alike predictions are. Alone: pytest tests/orchestrator/tasks/types/test_sequences.py"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.errors import DataError
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import TaskDataError
from orchestrator.specs.task import Head
from orchestrator.tasks.text_examples import TextExample
from orchestrator.tasks.types import TASK_TYPES
from orchestrator.tasks.types.classification import ClassPrediction
from orchestrator.tasks.types.multi_label import LabelsPrediction, MultiLabelTable
from orchestrator.tasks.types.multiple_choice import ChoicePrediction, MultipleChoiceExample, MultipleChoiceTable
from orchestrator.tasks.types.ner import TagsPrediction
from orchestrator.tasks.types.qa import AnswerPrediction
from orchestrator.tasks.types.regression import ValuePrediction
from orchestrator.tasks.types.sentence_selection import SentencesPrediction
from tests.orchestrator.tasks.definitions import decode, define, examples_of, features_of, window_texts, write_records


def test_sentences_and_pairs_become_windows(tokenizer: Tokenizer) -> None:
    examples = [TextExample("0", "The house", None, "b"), TextExample("1", "a river", "the", "a")]
    features = features_of("classification", ("a", "b"), examples, tokenizer, max_seq_length=32)
    assert window_texts(features, tokenizer) == ["[CLS] the house [SEP]", "[CLS] a river [SEP] the [SEP]"]
    assert features.token_type_ids[features.cu_seqlens[1] :].tolist()[-2:] == [1, 1]
    assert features.token_type_ids.sum() == 2
    assert features.head_arrays.labels.tolist() == [1, 0]
    assert features.example_index.tolist() == [0, 1]
    written = [TextExample("0", "[SEP]")]
    features = features_of("classification", ("a", "b"), written, tokenizer, max_seq_length=32)
    assert np.count_nonzero(features.input_ids == tokenizer.sep_id) == 1, "a special token in a text is text"


def test_classes_are_the_likeliest_with_probabilities(tokenizer: Tokenizer) -> None:
    task = define("classification", ("no", "yes"))
    examples = [TextExample(str(i), "the house") for i in range(2)]
    features = features_of(task.head, task.labels, examples, tokenizer, max_seq_length=8)
    predictions = decode(task, features, examples, np.array([[0.0, np.log(3.0)], [900.0, -900.0]], np.float32))
    assert predictions[0] == ClassPrediction("yes", (pytest.approx(0.25), pytest.approx(0.75)))
    assert predictions[1] == ClassPrediction("no", (1.0, 0.0))


def test_values_come_flat_or_in_a_column(tokenizer: Tokenizer) -> None:
    task = define("regression")
    examples = [TextExample("0", "a")] * 2
    features = features_of(task.head, (), examples, tokenizer, max_seq_length=8)
    expected = [ValuePrediction(1.5), ValuePrediction(-2.0)]
    assert decode(task, features, examples, np.array([1.5, -2.0])) == expected
    assert decode(task, features, examples, np.array([[1.5], [-2.0]])) == expected


NAMES = ["loud", "very loud", "3", "a;b", "zäh"]


TOPICS = MultiLabelTable(("text",), "topics", labels=tuple(NAMES))


@given(rows=st.lists(st.lists(st.sampled_from(NAMES), unique=True), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None)
def test_labels_are_the_same_in_every_form(rows: list[list[str]], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("labels")
    expected = [TextExample(str(i), "x", label=tuple(row)) for i, row in enumerate(rows)]
    forms = {"lists.jsonl": rows, "names.jsonl": [" | ".join(row) for row in rows], "json.jsonl": map(json.dumps, rows)}
    for name, values in forms.items():
        path = write_records(folder / name, *({"text": "x", "topics": value} for value in values))
        assert examples_of(TOPICS, path) == expected, name
    (folder / "names.tsv").write_text("text\ttopics\n" + "".join(f"x\t{'|'.join(row)}\n" for row in rows))
    assert examples_of(TOPICS, folder / "names.tsv") == expected
    parquet = write_records(folder / "a.parquet", *({"text": "x", "topics": row} for row in rows))
    assert examples_of(TOPICS, parquet) == expected


def test_the_separator_is_ones_own_and_a_label_may_be_a_number(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.jsonl", {"text": "x", "topics": "a|b;c"}, {"text": "y", "topics": 7})
    table = MultiLabelTable(("text",), "topics", separator=";")
    assert [example.label for example in examples_of(table, path)] == [("a|b", "c"), ("7",)]


@pytest.mark.parametrize("value", [{"loud": 1}, "loud||3", ["loud", ["3"]], '["loud"', "loud|quiet"])
def test_broken_labels_are_named_or_left_out(tmp_path: Path, value: object) -> None:
    path = write_records(tmp_path / "a.jsonl", {"text": "x", "topics": "3"}, {"text": "y", "topics": value})
    with pytest.raises(TaskDataError, match=r"line 2: .*topics"):
        examples_of(TOPICS, path)
    assert [example.label for example in examples_of(TOPICS, path, "skip")] == [("3",)]


@pytest.mark.parametrize("learned", [None, tuple(sorted(map(str, range(12)))), ("0", "2")])
def test_a_list_of_flags_is_read_alike_whatever_labels_the_task_has_learned(
    tmp_path: Path, learned: tuple[str, ...] | None
) -> None:
    """A task sorts the labels that it learns as texts, and has none for a place that is 0 in every row."""
    rows = [{"text": "x", "topics": [int(place == there) for place in range(12)]} for there in (0, 2)]
    path = write_records(tmp_path / "a.jsonl", *rows)
    table = MultiLabelTable(("text",), "topics", labels=learned)
    assert [example.label for example in examples_of(table, path)] == [("0",), ("2",)]
    if learned == ("0", "2"):
        write_records(path, rows[0], {"text": "y", "topics": [int(place == 3) for place in range(12)]})
        with pytest.raises(TaskDataError, match=r"line 2: .*'3'"):
            examples_of(table, path)


def test_labels_are_those_above_one_half(tokenizer: Tokenizer) -> None:
    task = define("multi_label", ("a", "b", "c"))
    examples = [TextExample(str(i), "the house", label=labels) for i, labels in enumerate([("c", "a"), ()])]
    features = features_of(task.head, task.labels, examples, tokenizer, max_seq_length=8)
    assert features.head_arrays.labels.tolist() == [[1, 0, 1], [0, 0, 0]]
    logits = np.array([[np.log(3.0), 0.0, 900.0], [-900.0, -1.0, -2.0]], np.float32)
    first, second = decode(task, features, examples, logits)
    assert first == LabelsPrediction(("a", "c"), (pytest.approx(0.75), 0.5, 1.0))
    assert (second.labels, second.probabilities[0]) == ((), 0.0)  # type: ignore[union-attr]
    with pytest.raises(DataError, match=r"\(2, 2\)"):
        decode(task, features, examples, logits[:, :2])


ENDINGS = MultipleChoiceTable(("first", "begins"), ("left", "right"), "label")


@pytest.mark.parametrize("label", [1, "1", "right"])
def test_the_second_text_begins_every_choice_and_the_label_is_a_place_or_a_name(tmp_path: Path, label: object) -> None:
    record = {"first": "It rains.", "begins": "She", "left": "swims.", "right": "runs.", "label": label}
    (example,) = examples_of(ENDINGS, write_records(tmp_path / "a.jsonl", record))
    assert example == MultipleChoiceExample("0", "It rains.", ("She swims.", "She runs."), 1)


@pytest.mark.parametrize(("field", "value"), [("label", 2), ("label", None), ("right", None), ("begins", [5])])
def test_a_broken_choice_is_named_or_left_out(tmp_path: Path, field: str, value: object) -> None:
    record = {"first": "a", "begins": "b", "left": "c", "right": "d", "label": 0}
    path = write_records(tmp_path / "a.jsonl", record, {**record, field: value})
    with pytest.raises(TaskDataError, match=f"line 2: {field}"):
        examples_of(ENDINGS, path)
    assert len(examples_of(ENDINGS, path, "skip")) == 1


def test_choices_are_windows_that_stay_together(tokenizer: Tokenizer) -> None:
    examples = [
        MultipleChoiceExample("0", "The house", ("a river", "the"), 1),
        MultipleChoiceExample("1", "a river " * 9, ("the", "the house")),
    ]
    features = features_of("multiple_choice", (), examples, tokenizer, max_seq_length=12)
    texts = window_texts(features, tokenizer)
    assert texts[:2] == ["[CLS] the house [SEP] a river [SEP]", "[CLS] the house [SEP] the [SEP]"]
    assert features.example_index.tolist() == [0, 0, 1, 1]
    assert features.head_arrays.labels.tolist() == [1, -100]
    assert (features.counts["num_truncated"], features.counts["num_tokens_cut"]) == (1, 21)
    assert features.group_starts.tolist() == [0, 2, 4]
    assert features.group_lengths.sum() == len(features.input_ids)
    assert features.windows_of(np.array([1, 0])).tolist() == [2, 3, 0, 1]


def test_choices_share_their_probability_within_an_example(tokenizer: Tokenizer) -> None:
    task = define("multiple_choice")
    examples = [MultipleChoiceExample("0", "a", ("b", "c", "d")), MultipleChoiceExample("1", "a", ("b", "c"))]
    features = features_of(task.head, (), examples, tokenizer, max_seq_length=8)
    predictions = decode(task, features, examples, np.array([[0.0], [np.log(2.0)], [0.0], [5.0], [-900.0]], np.float32))
    assert predictions[0] == ChoicePrediction(1, (pytest.approx(0.25), pytest.approx(0.5), pytest.approx(0.25)))
    assert predictions[1] == ChoicePrediction(0, (1.0, 0.0))
    with pytest.raises(DataError, match="4 outputs"):
        decode(task, features, examples, np.zeros(4))


SIDES: dict[Head, tuple[Any, list[Any], list[Any], float]] = {
    # class of predictions, its arguments for those of two models, agreement
    "classification": (ClassPrediction, [("a", (0.9, 0.1)), "b", "a", "a"], [("a", (0.6, 0.4)), "b", "a", "b"], 0.75),
    "multi_label": (
        LabelsPrediction,
        [(("a", "b"), (0.9, 0.8)), ((), (0.1, 0.2))],
        [(("a", "b"), (0.6, 0.6)), (("a",), (0.6, 0.2))],
        0.5,
    ),
    "multiple_choice": (ChoicePrediction, [(1,), (0,)], [(1, (0.4, 0.6)), (2,)], 0.5),
    "ner": (TagsPrediction, [(("O", "B-x", "I-x"),), (("O",),)], [(("O", "B-x", "O"),), (("B-x",),)], 0.5),
    "token_classification": (TagsPrediction, [(("a", "b"),)], [(("a", "c"),)], 0.5),
    "qa": (AnswerPrediction, ["x", ("",)], ["x", "y"], 0.5),
    "sentence_selection": (
        SentencesPrediction,
        [((0, 2), (0.9, 0.1, 0.6)), ((), (0.1,))],
        [((0,), (0.6, 0.1, 0.4)), ((), (0.4,))],
        0.75,
    ),
    "regression": (ValuePrediction, [(1.0,), (2.0,), (3.0,)], [(0.0,), (5.0,), (10.0,)], 1.0),
}


@pytest.mark.parametrize("head", SIDES)
def test_agreement_is_the_share_of_equal_predictions(head: Head) -> None:
    kind, *sides, expected = SIDES[head]
    student, teacher = ([kind(*arguments) for arguments in side] for side in sides)
    agreement = TASK_TYPES[head].target.agreement
    assert agreement(student, teacher) == agreement(teacher, student) == pytest.approx(expected)
    assert agreement(student, student) == pytest.approx(1.0)
