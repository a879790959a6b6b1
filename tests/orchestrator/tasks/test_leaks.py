"""Leaks: examples of a split that the training split has too. Alone: pytest tests/orchestrator/tasks/test_leaks.py"""

import json
from pathlib import Path

from orchestrator.specs import TaskSpec
from orchestrator.tasks.loading import count_leaks, load_task


def leaks(head: str, columns: tuple[str, ...] = (), **files: Path) -> dict[str, int]:
    """Leaks of a person's own task."""
    named = {split: str(path) for split, path in files.items()}
    return count_leaks(load_task(TaskSpec(id="own", head=head, text_columns=columns, files=named)))  # type: ignore


def table(path: Path, *rows: str) -> Path:
    """A CSV file of a text, or two, and a label."""
    names = "text,label" if rows[0].count(",") == 1 else "text,other,label"
    path.write_text("\n".join((names, *rows)) + "\n")
    return path


def test_copies_count_whatever_their_capitals_and_white_space(tmp_path: Path) -> None:
    train = table(tmp_path / "train.csv", "A  cat sat,a", "a dog sat,b")
    validation = table(tmp_path / "dev.csv", "a cat SAT,a", "a cat sat,b", "a bird sat,a")
    test = table(tmp_path / "test.csv", "a bird sat,a")
    assert leaks("classification", ("text",), train=train, validation=validation, test=test) == {"validation": 2}


def test_a_pair_is_shared_where_both_texts_are_and_no_text_without_a_word(tmp_path: Path) -> None:
    train = table(tmp_path / "train.csv", "one,two,a", "three,four,b", " , ,a")
    validation = table(tmp_path / "dev.csv", "one,four,a", "three,four,b", " , ,a")
    assert leaks("classification", ("text", "other"), train=train, validation=validation) == {"validation": 1}


def test_sentences_of_names_are_shared_by_their_words(tmp_path: Path) -> None:
    train, validation = tmp_path / "train.conll", tmp_path / "dev.conll"
    train.write_text("Ada B-PER\nsat O\n\nBerlin B-LOC\nis O\n")
    validation.write_text("ada O\nsat O\n\nParis B-LOC\nis O\n")
    assert leaks("ner", train=train, validation=validation) == {"validation": 1}


def test_questions_are_shared_by_their_passage(tmp_path: Path) -> None:
    def write(name: str, context: str, *questions: str) -> Path:
        asked = [
            {"id": f"{name}{number}", "question": question, "answers": [{"text": "Ada", "answer_start": 0}]}
            for number, question in enumerate(questions)
        ]
        path = tmp_path / name
        path.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": asked}]}]}))
        return path

    train = write("train.json", "Ada sat.", "Who sat?")
    validation = write("dev.json", "Ada sat.", "Who was it?", "What is her name?")
    assert leaks("qa", train=train, validation=validation) == {"validation": 2}


def test_choices_belong_to_what_is_shared(tmp_path: Path) -> None:
    for name, choices in (("train", "b,c"), ("same", "b,c"), ("other", "b,d")):
        (tmp_path / f"{name}.csv").write_text(f"text,one,two,label\na,{choices},0\n")
    spec = TaskSpec(id="own", head="multiple_choice", text_columns=("text",), choice_columns=("one", "two"))
    for name, found in (("same", {"validation": 1}), ("other", {})):
        files = {"train": str(tmp_path / "train.csv"), "validation": str(tmp_path / f"{name}.csv")}
        assert count_leaks(load_task(spec.model_copy(update={"files": files}))) == found
