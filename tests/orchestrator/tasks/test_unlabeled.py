"""A task's files without labels give the same examples. Alone: pytest tests/orchestrator/tasks/test_unlabeled.py"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import TaskDataError
from orchestrator.specs import TaskSpec
from orchestrator.tasks import load_task
from tests.orchestrator.finetuning import tiny_tasks

NO_LABEL: dict[str, dict[str, Any]] = {
    "classification": {"label": None},
    "multi_label": {"labels": None},
    "multiple_choice": {"label": None},
    "columns": {"label": None},
    "regression": {"value": None},
    "ner": {"tags": ()},
    "token_classification": {"tags": ()},
    "qa": {"answers": ()},
    "sentence_selection": {"selected": None},
}


def load(head: str, folder: Path) -> TaskSpec:
    make: Callable[[Path], TaskSpec] = getattr(tiny_tasks, head)
    return make(folder)


def unlabeled_copy(path: Path) -> Path:
    """A file of the tiny tasks without its labels."""
    target = path.with_name(f"unlabeled{path.suffix}")
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".conll":
        text = "\n".join(line.split()[0] if line else "" for line in text.split("\n"))
    elif path.suffix == ".jsonl":
        rows = [json.loads(line) for line in text.splitlines()]
        text = "".join(json.dumps({k: v for k, v in row.items() if k != "label"}) + "\n" for row in rows)
    else:
        content = json.loads(text)
        for paragraph in content["data"][0]["paragraphs"]:
            del paragraph["qas"][0]["answers"]
        text = json.dumps(content)
    target.write_text(text, encoding="utf-8")
    return target


@pytest.mark.parametrize("head", NO_LABEL)
def test_examples_are_the_same_but_for_their_labels(head: str, tmp_path: Path) -> None:
    task = load_task(load(head, tmp_path))
    path = Path(task.files["train"])
    expected = [replace(example, **NO_LABEL[head]) for example in task.examples("train")]
    for file in (path, unlabeled_copy(path)):
        assert list(task.without_labels(str(file)).examples("train")) == expected


def test_plain_text_is_a_line_each_with_a_tab_in_a_pair(tmp_path: Path) -> None:
    spec = tiny_tasks.classification(tmp_path)
    path = tmp_path / "texts.txt"
    path.write_text("one text\n\nand another\n", encoding="utf-8")
    assert [e.text for e in load_task(spec).without_labels(str(path)).examples("train")] == ["one text", "and another"]
    pairs = replace(load_task(spec), reader=replace(load_task(spec).reader, text_columns=("text", "next")))
    path.write_text("one\ttwo\nthree\n", encoding="utf-8")
    with pytest.raises(TaskDataError, match="line 2: 1 texts with tabs between them; wanted: text, next"):
        pairs.without_labels(str(path)).examples("train")
