"""The record in a fine-tuned model's folder: what it says, that it is read as written.

Alone: pytest tests/orchestrator/finetuning/test_model_folder.py
"""

import json
from dataclasses import replace

import pytest

from orchestrator.finetuning.heads import HEADS
from orchestrator.finetuning.model_record import FineTuningRecord, record_of
from orchestrator.specs.task import Head
from orchestrator.tasks.tabular_columns import CategoricalColumn, NumericalColumn, TabularColumns
from tests.orchestrator.tasks.definitions import define, options_of


@pytest.mark.parametrize("head", HEADS)
def test_a_record_is_read_as_it_was_written(head: Head) -> None:
    columns = TabularColumns((NumericalColumn("size", 1.0, 2.0),), (CategoricalColumn("colour", ("blue", "red")),))
    task = define(head, metric="f1", objective="cosine" if head == "embedding" else None, columns=columns)
    record = record_of(replace(task, text_columns=("title", "body")), options_of(head, max_seq_length=17))
    values = json.loads(json.dumps(record.to_dict()))
    assert FineTuningRecord.from_dict(values) == record
    assert values["max_seq_length"] == 17


def test_a_record_keeps_the_options_of_its_own_type_alone() -> None:
    keys = {head: record_of(define(head), options_of(head)).to_dict().keys() for head in ("qa", "ner", "regression")}
    assert keys["qa"] - keys["regression"] == {"doc_stride", "max_query_length", "max_answer_length", "null_threshold"}
    assert keys["ner"] - keys["regression"] == {"context"}


@pytest.mark.parametrize("missing", ["task", "head", "metric", "max_seq_length", "doc_stride"])
def test_a_record_without_a_value_that_it_needs_is_not_read(missing: str) -> None:
    values = record_of(define("qa"), options_of("qa")).to_dict()
    del values[missing]
    with pytest.raises((KeyError, TypeError), match=missing):
        FineTuningRecord.from_dict(values)


def test_a_record_with_a_value_that_nobody_knows_is_not_read() -> None:
    with pytest.raises(TypeError, match="strange"):
        FineTuningRecord.from_dict(record_of(define("qa"), options_of("qa")).to_dict() | {"strange": 1})
