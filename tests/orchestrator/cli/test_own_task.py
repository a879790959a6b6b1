"""`evaluate` of a model on its own task: on a file of labeled examples, and on the files that its run has recorded.

Alone: pytest tests/orchestrator/cli/test_own_task.py
"""

import json
from pathlib import Path

import pytest

from orchestrator.finetuning.model_record import RECORD_FILE, FineTuningRecord
from orchestrator.registry import Registry
from orchestrator.results import ModelResult
from orchestrator.settings import Settings
from orchestrator.specs.loading import parse_spec, spec_values
from orchestrator.tasks.options import TaskOptions
from tests.orchestrator.cli.laboratory import Command
from tests.orchestrator.tiny_models import save_pair_model

TASK = {
    "id": "complaints",
    "head": "classification",
    "files": {"train": "train.csv", "validation": "dev.csv"},
    "text_columns": ["body"],
    "label_column": "kind",
}


@pytest.fixture
def files(tmp_path: Path, home: Path) -> None:
    """A task's files in the current folder, and two files with labeled rows that it does not have."""
    (tmp_path / "train.csv").write_text("body,kind\ncats rest,yes\nrain falls,no\n")
    (tmp_path / "dev.csv").write_text("body,kind\ncats rest,yes\n")
    (tmp_path / "new.csv").write_text("id,body,kind\n1,rain falls,yes\n2,cats rest,no\n3,dogs rest,no\n")
    (tmp_path / "usual.csv").write_text("text,label\nrain falls,yes\n")


@pytest.fixture
def recorded(files: None, classifier: str) -> str:
    """Name of a model with a run whose spec has these files."""
    spec = spec_values(parse_spec({"kind": "sweep", "task": TASK, "recipe": {"tokenizer": "words"}}))
    with Registry(Settings.from_options().registry) as registry:
        run = registry.lifecycle.create(kind="sweep", name="s", fingerprint="f" * 64, spec=spec)
        registry.models.register("mine", ModelResult(classifier, "d" * 64, 1, "classification"), run)
    return "mine"


def scored(command: Command, *arguments: str) -> dict[str, object]:
    outcome = command("evaluate", *arguments, "-f", "json")
    assert outcome.status == 0, outcome.err
    record: dict[str, object] = json.loads(outcome.out)
    return {name: record[name] for name in ("task", "split", "num_examples")}


def test_a_file_is_scored_as_the_models_own_task(recorded: str, command: Command) -> None:
    assert scored(command, recorded, "new.csv") == {"task": "new.csv", "split": "validation", "num_examples": 3}
    assert scored(command, recorded, "usual.csv", "text_columns=[text]", "label_column=label")["num_examples"] == 1


def test_the_arithmetic_has_a_name_that_no_score_has(recorded: str, command: Command) -> None:
    record = json.loads(command("evaluate", recorded, "new.csv", "-f", "json").out)
    assert record["computed_in"] == "fp32"
    assert "precision" not in record


def test_the_id_of_the_models_own_task_means_its_recorded_files(recorded: str, command: Command) -> None:
    assert scored(command, recorded, "complaints")["num_examples"] == 1
    assert scored(command, recorded, "complaints", "--split", "train")["num_examples"] == 2
    with_others = command("evaluate", recorded, "complaints", "folder=elsewhere")
    assert (with_others.status, "no known task is called 'complaints'" in with_others.err) == (3, True)


def test_a_folder_without_a_run_is_scored_on_a_file_by_the_columns_that_are_named(
    files: None, classifier: str, command: Command
) -> None:
    assert scored(command, classifier, "usual.csv", "text_columns=[text]")["num_examples"] == 1
    unnamed = command("evaluate", classifier, "usual.csv")
    assert (unnamed.status, "task.text_columns: name the one or two columns" in unnamed.err) == (2, True)
    gone = command("evaluate", classifier, "gone.csv", "text_columns=[text]")
    assert (gone.status, "there is no file gone.csv" in gone.err) == (2, True)


def test_a_file_for_a_model_of_a_known_task_has_that_tasks_layout(home: Path, command: Command, tmp_path: Path) -> None:
    folder = Path(save_pair_model(tmp_path / "cola", ["unacceptable", "acceptable"]))
    options = TaskOptions(max_seq_length=16)
    record = FineTuningRecord(task="cola", head="classification", metric="matthews_correlation", options=options)
    (folder / RECORD_FILE).write_text(json.dumps(record.to_dict()))
    (tmp_path / "sentences.tsv").write_text("gj04\t1\t\tcats rest\ngj04\t0\t*\trest cats\n")
    assert scored(command, str(folder), "sentences.tsv") == {"task": "cola", "split": "validation", "num_examples": 2}
