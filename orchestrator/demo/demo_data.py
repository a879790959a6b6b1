"""The world written to files: a corpus of plain text and three tasks in the layouts that tasks are read from."""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from orchestrator.demo.documents import generate_documents
from orchestrator.demo.labeled_tasks import (
    KindExample,
    NamesExample,
    QuestionExample,
    Splits,
    kind_examples,
    names_examples,
    question_examples,
)
from orchestrator.demo.world import World, generate_world

NUM_DOCUMENTS = 5000
# Examples for training, and each for validation and test.
NUM_KIND_EXAMPLES = (160, 400)
NUM_NAMES_EXAMPLES = (160, 400)
NUM_QUESTIONS = (2000, 400)

ExampleT = TypeVar("ExampleT")


@dataclass(frozen=True)
class DemoData:
    """The world and where its text lies; each task has a file per split (train, validation, test)."""

    world: World
    corpus: Path
    kinds: dict[str, Path]  # CSV with the columns text, label
    names: dict[str, Path]  # CoNLL columns: word, tag
    questions: dict[str, Path]  # SQuAD v1.1 JSON


def write_demo_data(folder: str | Path, seed: int = 0) -> DemoData:
    """Write the generated corpus and tasks of this seed below `folder`; the same seed gives the same bytes."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    world = generate_world(seed)
    corpus = folder / "corpus.txt"
    corpus.write_text(corpus_text(world, NUM_DOCUMENTS), encoding="utf-8")
    return DemoData(
        world=world,
        corpus=corpus,
        kinds=_write_splits(folder / "kinds", ".csv", kind_examples(world, *NUM_KIND_EXAMPLES), write_csv),
        names=_write_splits(folder / "names", ".conll", names_examples(world, *NUM_NAMES_EXAMPLES), write_conll),
        questions=_write_splits(folder / "questions", ".json", question_examples(world, *NUM_QUESTIONS), write_squad),
    )


def corpus_text(world: World, num_documents: int) -> str:
    """The corpus as plain text: a document is one line, a blank line stands between documents."""
    documents = generate_documents(world, num_documents)
    return "\n\n".join(" ".join(sentence.text for sentence in document) for document in documents) + "\n"


def _write_splits(
    folder: Path, suffix: str, splits: Splits[ExampleT], write: Callable[[Path, Sequence[ExampleT]], None]
) -> dict[str, Path]:
    folder.mkdir(exist_ok=True)
    paths = {}
    for name, examples in (("train", splits.train), ("validation", splits.validation), ("test", splits.test)):
        paths[name] = folder / f"{name}{suffix}"
        write(paths[name], examples)
    return paths


def write_csv(path: Path, examples: Sequence[KindExample]) -> None:
    """Write a table of texts and labels."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("text", "label"))
        writer.writerows((example.text, example.label) for example in examples)


def write_conll(path: Path, examples: Sequence[NamesExample]) -> None:
    """A word and its tag on each line, a blank line after each sentence."""
    with path.open("w", encoding="utf-8") as file:
        for example in examples:
            file.writelines(f"{word} {tag}\n" for word, tag in zip(example.words, example.tags, strict=True))
            file.write("\n")


def write_squad(path: Path, examples: Sequence[QuestionExample]) -> None:
    """The layout of SQuAD v1.1, a paragraph for each passage."""
    paragraphs: dict[str, list[dict[str, object]]] = {}
    for number, example in enumerate(examples):
        answers = [{"text": text, "answer_start": start} for start, text in example.answers]
        paragraphs.setdefault(example.passage, []).append(
            {"id": f"{path.stem}-{number:05d}", "question": example.question, "answers": answers}
        )
    article = {
        "title": "Generated world",
        "paragraphs": [{"context": passage, "qas": questions} for passage, questions in paragraphs.items()],
    }
    content = json.dumps({"version": "1.1", "data": [article]}, indent=1, ensure_ascii=False)
    path.write_text(content + "\n", encoding="utf-8")
