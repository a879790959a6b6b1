"""Tags that mark no entities. Alone: pytest tests/orchestrator/tasks/types/test_token_classification.py"""

import json
from pathlib import Path

import pytest
from sklearn.metrics import accuracy_score, f1_score

from orchestrator.base.errors import TaskDataError
from orchestrator.specs import TaskSpec
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.scoring import majority_baseline, score
from orchestrator.tasks.task import Task
from orchestrator.tasks.types.ner import TagsPrediction

SENTENCES = [
    (("Ada", "saw", "it"), ("NNP", "VBD", "PRP")),
    (("#", "O"), ("SYM", "O")),
    (("Dan", "ran", "%"), ("NNP", "B-x", "SYM")),
]


def loaded(path: Path, **changes: object) -> Task:
    files = {"train": str(path), "validation": str(path)}
    return load_task(TaskSpec.model_validate({"id": "pos", "head": "token_classification", "files": files, **changes}))


def as_lines() -> str:
    return "\n".join("".join(f"{word}\t{tag}\n" for word, tag in zip(*one, strict=True)) for one in SENTENCES)


def as_rows() -> str:
    return "".join(json.dumps({"tokens": words, "tags": tags}) + "\n" for words, tags in SENTENCES)


@pytest.mark.parametrize(("name", "text"), [("a.conll", as_lines()), ("a.jsonl", as_rows())])
def test_tags_are_taken_as_they_are(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    task = loaded(path)
    assert [(example.words, example.tags) for example in task.examples("train")] == SENTENCES
    assert task.labels == ("B-x", "NNP", "O", "PRP", "SYM", "VBD")
    with pytest.raises(TaskDataError, match="is none of the labels"):
        loaded(path, labels=("NNP", "VBD")).examples("train")


def test_tags_of_conll_u_are_those_of_its_fourth_column(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    line = "{0}\t{1}\t_\t{2}\tXX\t_\t0\t_\t_\tSpaceAfter=No\n"
    path.write_text("".join(line.format(*row) for row in ((1, "Ada", "PROPN"), (2, "ran", "VERB"))) + "\n")
    assert loaded(path).labels == ("PROPN", "VERB")


def test_a_word_without_a_tag_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("Ada\tNN\nran\t\n\nit\tPRP\n")
    with pytest.raises(TaskDataError, match="line 2: a word has no tag"):
        loaded(path)


def test_scores_are_scikit_learns_over_words(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text(as_lines())
    task = loaded(path)
    predicted = [("NNP", "NNP", "PRP"), ("SYM", "SYM"), ("NNP", "VBD", "SYM")]
    gold = [tag for _, tags in SENTENCES for tag in tags]
    flat = [tag for tags in predicted for tag in tags]
    found = score(task, "validation", [TagsPrediction(tags) for tags in predicted])
    assert found["word_accuracy"] == pytest.approx(accuracy_score(gold, flat))
    assert found["macro_f1"] == pytest.approx(f1_score(gold, flat, average="macro"))
    assert majority_baseline(task, "validation")["word_accuracy"] == pytest.approx(2 / 8)


def test_a_file_without_tags_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("Ada\nsaw\n\nit\n")
    with pytest.raises(TaskDataError, match="no tags behind its words"):
        loaded(path)
    path.write_text("Ada\tNN\nsaw\tNN\n\n" * 3)
    with pytest.raises(TaskDataError, match="one label only"):
        loaded(path)
