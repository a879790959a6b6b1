"""`models lineage`, `models descendants`, and exports as part of both.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_lineage_drawing.py
"""

import csv
import io
import json
from pathlib import Path

import pytest

from orchestrator.base.results import DatasetResult, FileCount, ModelResult
from orchestrator.base.settings import Settings
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder, RunOutcome
from tests.orchestrator.cli.laboratory import Command


@pytest.fixture
def model_folder(home: Path, tmp_path: Path) -> Path:
    """A pretrained model of one file of text, as a folder."""
    text, folder = tmp_path / "text.txt", tmp_path / "model"
    text.write_text("words")
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with Registry(Settings.from_options().registry) as registry:
        recorder = Recorder(registry)
        run = recorder.start({"kind": "pretrain", "name": "words", "tokenizer": "vocab"}, "f")
        files = [FileCount(str(text), 5, 1)]
        recorder.registry.datasets.record(run.id, DatasetResult("text.txt", "corpus", "c" * 64, "/c", {}, files))
        recorder.record_model(run.id, ModelResult(str(folder), "d" * 64, 5, "pretraining"))
        recorder.complete(run.id, RunOutcome(str(folder)))
    return folder


def test_a_model_is_drawn_with_what_it_was_made_of(command: Command, model_folder: Path, tmp_path: Path) -> None:
    assert command("models", "lineage", "words").out.splitlines() == [
        "model words@1 dddddddddddd",
        "├── text: corpus text.txt cccccccccccc",
        f"│   ├── text: file {tmp_path}/text.txt",
        "│   └── tokenizer: tokenizer vocab fd807fa054b2",
        "└── tokenizer: tokenizer vocab fd807fa054b2",
    ]


def test_an_export_is_a_descendant(command: Command, model_folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "exported"
    assert command("models", "export", "words", "-o", str(target)).status == 0
    assert f"└── copy: export {target}" in command("models", "lineage", "--down", "words@1").out
    tree = json.loads(command("models", "lineage", str(target), "-f", "json").out)
    assert (tree["kind"], tree["branches"][0]["name"], tree["branches"][0]["role"]) == ("export", "words@1", "copy")
    rows = list(csv.DictReader(io.StringIO(command("models", "lineage", str(target), "-f", "csv").out)))
    assert [(row["depth"], row["kind"]) for row in rows[:2]] == [("0", "export"), ("1", "model")]


def test_a_model_that_is_not_there_is_not_found(command: Command, model_folder: Path) -> None:
    outcome = command("models", "lineage", "nothing")
    assert (outcome.status, outcome.out) == (3, "")
    assert "give a model (words@1)" in outcome.err
    assert command("models", "lineage", "--down", "words").err == "nothing was made of it\n"
