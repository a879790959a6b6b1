"""`predict` and `embed` of lines from stdin and from packed files, and what workers cannot do.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_predicting.py
"""

import gzip
import io
import json
import sys
from pathlib import Path

import pytest

from bert_core.config import BertConfig
from orchestrator.finetuning.model_record import RECORD_FILE, FineTuningRecord
from orchestrator.tasks.options import TaskOptions
from tests.orchestrator.cli.fresh_process import loaded_by_each
from tests.orchestrator.cli.laboratory import Command


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lines and a blank one; not a terminal."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"cats rest\n\nrain falls\n")))


@pytest.mark.parametrize("name", ["embed", "predict"])
def test_stdin_and_a_packed_file_give_the_same(
    name: str, stdin: None, command: Command, encoder: str, classifier: str, tmp_path: Path
) -> None:
    (tmp_path / "lines.gz").write_bytes(gzip.compress(b"cats rest\n\nrain falls\n"))
    model = {"embed": encoder, "predict": classifier}[name]
    piped = command(name, model)
    assert [json.loads(line)["text"] for line in piped.out.splitlines()] == ["cats rest", "rain falls"]
    assert command(name, model, "lines.gz").out == piped.out


def test_workers_want_a_file(command: Command, encoder: str) -> None:
    outcome = command("embed", encoder, "--workers", "2")
    assert (outcome.status, outcome.out) == (2, "")
    assert "name a FILE, or leave --workers out" in outcome.err


@pytest.mark.parametrize("name", ["embed", "predict"])
def test_a_text_in_place_of_a_file_is_answered(
    name: str, command: Command, encoder: str, classifier: str, tmp_path: Path
) -> None:
    (tmp_path / "one.txt").write_text("cats rest.\n")
    model = {"embed": encoder, "predict": classifier}[name]
    assert command(name, model, "cats rest.").out == command(name, model, "one.txt").out


@pytest.mark.parametrize("file", ["my reviews.csv", "reviews", "my data/reviews.csv.gz"])
def test_a_file_that_is_not_there_is_no_text(file: str, command: Command, classifier: str) -> None:
    outcome = command("predict", classifier, file)
    assert (outcome.status, outcome.out) == (2, "")
    assert f"there is no file {file}; check the path" in outcome.err


@pytest.mark.parametrize("text", ["see example.com", "it costs 3.50", "what a film...yes"])
def test_a_text_may_end_as_a_name_on_the_web_does(text: str, command: Command, classifier: str) -> None:
    assert json.loads(command("predict", classifier, text).out)["text"] == text


def test_a_text_has_no_workers_and_no_columns(command: Command, classifier: str) -> None:
    assert "name a FILE, or leave --workers out" in command("predict", classifier, "cats rest", "--workers", "2").err
    assert "name the FILE" in command("predict", classifier, "cats rest", "--text-column", "a").err


def test_a_key_of_the_answer_that_a_line_has_stays_as_it_is(command: Command, classifier: str, tmp_path: Path) -> None:
    (tmp_path / "gold.jsonl").write_text('{"text": "cats rest", "label": "gold", "id": 7}\n{"text": "cats rest"}\n')
    first, second = map(json.loads, command("predict", classifier, "gold.jsonl").out.splitlines())
    assert list(first) == ["text", "label", "id", "predicted_label", "probabilities"]
    assert (first["label"], first["predicted_label"]) == ("gold", second["label"])


def test_a_folder_without_weights_is_enough_to_refuse_a_broken_line(
    command: Command, recorded_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "lines.jsonl").write_text('{"text": "cats rest"}\n\n{"text": 3}\n')
    outcome = command("predict", str(recorded_model), "lines.jsonl")
    assert "lines.jsonl: line 3: text must be text; the keys of classification are text, text_pair" in outcome.err
    outcome = command("predict", str(recorded_model), '{"words": ["a"]}')
    assert "line 1: no key 'text'; it has: words" in outcome.err


@pytest.mark.heavy
def test_what_a_person_has_to_mend_is_told_before_torch_is_loaded(recorded_model: Path, tmp_path: Path) -> None:
    model, table, broken = str(recorded_model), tmp_path / "rows.csv", tmp_path / "lines.jsonl"
    table.write_text("title\na\n")
    broken.write_text('{"text": \n')
    for status, loaded in loaded_by_each(
        [
            ["predict", model, str(tmp_path / "missing.txt")],
            ["predict", model, str(table)],
            ["predict", model, str(broken)],
            ["predict", model, str(broken), "-o", str(tmp_path / "none" / "out.jsonl")],
        ]
    ).values():
        assert status == 2
        assert not loaded & {"torch", "ray"}


@pytest.fixture
def recorded_model(tmp_path: Path) -> Path:
    """Folder of a fine-tuned model whose weights are missing."""
    folder = tmp_path / "model"
    folder.mkdir()
    config = BertConfig.from_size("tiny", vocab_size=50).with_labels(["no", "yes"], "single_label_classification")
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    options = TaskOptions(max_seq_length=16)
    record = FineTuningRecord(task="own", head="classification", metric="accuracy", options=options)
    (folder / RECORD_FILE).write_text(json.dumps(record.to_dict()))
    return folder
