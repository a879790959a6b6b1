"""The demo's files: layouts, splits that share nothing. Alone: pytest tests/orchestrator/demo/test_demo_data.py"""

import csv
import json
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from orchestrator.demo.demo_data import DemoData
from orchestrator.demo.world import SAY, things_by_kind

pytestmark = [pytest.mark.heavy, pytest.mark.core]
DIGESTS = {
    "corpus.txt": "0f3a42a0a5cacf0d",
    "kinds/test.csv": "5c13f3daaccad526",
    "kinds/train.csv": "1eb5edce04d0e3e7",
    "kinds/validation.csv": "28612c2dd2c325a7",
    "names/test.conll": "3dd1080f1bdc4e44",
    "names/train.conll": "9d69a6f7380985e4",
    "names/validation.conll": "5a594d20e99f9db8",
    "questions/test.json": "5d0640873a4ae62c",
    "questions/train.json": "134c8c0042fd86ae",
    "questions/validation.json": "76eab7fda876a61b",
}
"""Beginnings of the SHA-256 of each file of seed 0: the demo's table is of this world."""
SPLITS = ("train", "validation", "test")


def read_kinds(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_names(path: Path) -> list[list[tuple[str, str]]]:
    blocks = path.read_text(encoding="utf-8").strip().split("\n\n")
    return [[(line.split(" ")[0], line.split(" ")[1]) for line in block.split("\n")] for block in blocks]


def read_questions(path: Path) -> list[tuple[str, dict[str, Any]]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["version"] == "1.1"
    return [(paragraph["context"], qa) for paragraph in content["data"][0]["paragraphs"] for qa in paragraph["qas"]]


def test_the_world_of_the_demo_is_the_same_as_ever(data: DemoData) -> None:
    folder = data.corpus.parent
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*.*")}
    assert {name: sha256(path.read_bytes()).hexdigest()[:16] for name, path in files.items()} == DIGESTS


def test_kinds_are_balanced_and_disjoint(data: DemoData) -> None:
    texts: list[str] = []
    for split in SPLITS:
        rows = read_kinds(data.tasks["kinds"][split])
        counts = Counter(row["label"] for row in rows)
        assert set(counts) == set(things_by_kind(data.world, 0))
        assert len(set(counts.values())) == 1
        texts += [row["text"] for row in rows]
    assert len(set(texts)) == len(texts)


def test_kinds_to_be_scored_are_asked_of_new_things(data: DemoData) -> None:
    halves = [things_by_kind(data.world, group) for group in (0, 1)]
    things = {thing.text for half in halves for mentions in half.values() for thing in mentions}
    about = {template.replace("{thing}", thing): thing for template in SAY["talk"] for thing in things}
    spoken_of = {split: {about[row["text"]] for row in read_kinds(data.tasks["kinds"][split])} for split in SPLITS}
    assert len(spoken_of["train"]) > 60
    assert not spoken_of["train"] & spoken_of["validation"]
    assert not spoken_of["train"] & spoken_of["test"]


def test_names_to_be_scored_are_not_in_training(data: DemoData) -> None:
    def first_words(split: str) -> set[str]:
        return {
            word
            for sentence in read_names(data.tasks["names"][split])
            for word, tag in sentence
            if tag.startswith("B-")
        }

    training = first_words("train")
    assert len(training) > 50
    assert not training & first_words("validation")
    assert not training & first_words("test")


def test_answers_stand_where_they_are_said_to_ids_are_unique_and_passages_disjoint(data: DemoData) -> None:
    questions = [
        (split, context, qa) for split in SPLITS for context, qa in read_questions(data.tasks["questions"][split])
    ]
    for _, context, qa in questions:
        assert {context[answer["answer_start"] :].startswith(answer["text"]) for answer in qa["answers"]} == {True}
    ids = [qa["id"] for _, _, qa in questions]
    assert len(set(ids)) == len(ids)
    passages = {split: {context for where, context, _ in questions if where == split} for split in SPLITS}
    assert not passages["train"] & passages["validation"]
    assert not passages["train"] & passages["test"]
    assert not passages["validation"] & passages["test"]
