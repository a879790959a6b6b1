"""The world written to files: a corpus of plain text, and three labeled tasks in the layouts that tasks are read from.

The tasks: what kind of thing is spoken of, the names in a sentence, questions on a passage. Their training sets are
small on purpose: what they leave out is what pretraining has to bring.
"""

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from orchestrator.demo.world import (
    SAY,
    Firm,
    Person,
    Sentence,
    World,
    compose,
    distracting_passage,
    generate_documents,
    generate_world,
    join_sentences,
    passage_about,
    question_subjects,
    tell,
    things_by_kind,
)

NUM_DOCUMENTS = 5000
# Examples for training, and each for validation and test.
NUM_KIND_EXAMPLES = (160, 400)
NUM_NAMES_EXAMPLES = (160, 400)
NUM_QUESTIONS = (2000, 400)

KindExample = tuple[str, str]
"""A sentence, and the kind of thing that it speaks of."""
NamesExample = tuple[tuple[str, ...], tuple[str, ...]]
"""Words and their tags: O, or B- and I- of PER, LOC, ORG."""
Splits = tuple[Sequence[Any], Sequence[Any], Sequence[Any]]
"""Examples for training, validation and test; no text is in two of them."""


class QuestionExample(NamedTuple):
    """A passage, a question on it, and where its answer stands: (first character, text) for each place."""

    passage: str
    question: str
    answers: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class DemoData:
    """The world and where its text lies."""

    world: World
    corpus: Path
    tasks: Mapping[str, Mapping[str, Path]]
    """Files of each task, by split: `kinds` in CSV, `names` in CoNLL columns, `questions` as SQuAD v1.1."""


def write_demo_data(folder: str | Path, seed: int = 0) -> DemoData:
    """Write the generated corpus and tasks of this seed below `folder`; the same seed gives the same bytes."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    world = generate_world(seed)
    corpus = folder / "corpus.txt"
    corpus.write_text(corpus_text(world, NUM_DOCUMENTS), encoding="utf-8")
    written: tuple[tuple[str, str, Splits, Callable[[Path, Sequence[Any]], None]], ...] = (
        ("kinds", ".csv", kind_examples(world, *NUM_KIND_EXAMPLES), write_csv),
        ("names", ".conll", names_examples(world, *NUM_NAMES_EXAMPLES), write_conll),
        ("questions", ".json", question_examples(world, *NUM_QUESTIONS), write_squad),
    )
    tasks: dict[str, dict[str, Path]] = {}
    for task, suffix, splits, write in written:
        (folder / task).mkdir(exist_ok=True)
        tasks[task] = {split: folder / task / f"{split}{suffix}" for split in ("train", "validation", "test")}
        for path, examples in zip(tasks[task].values(), splits, strict=True):
            write(path, examples)
    return DemoData(world, corpus, tasks)


def corpus_text(world: World, num_documents: int) -> str:
    """The corpus as plain text: a document is one line, a blank line stands between documents."""
    documents = generate_documents(world, num_documents)
    return "\n\n".join(join_sentences(document).text for document in documents) + "\n"


def kind_examples(world: World, num_train: int, num_scored: int) -> Splits:
    """Sentences that could be about anything, with the kind of what they are about, all kinds in equal shares.

    No split has a thing of another one: what kind it is has to be known from elsewhere.
    """
    rng = Random(f"kinds {world.seed}")
    first, second = (things_by_kind(world, group) for group in (0, 1))
    splits: tuple[list[KindExample], list[KindExample], list[KindExample]] = ([], [], [])
    for kind in first:
        things = list(dict.fromkeys(first[kind] + second[kind]))
        rng.shuffle(things)
        third = len(things) // 3
        parts = (things[:third], things[third : 2 * third], things[2 * third :])
        for examples, part, count in zip(splits, parts, (num_train, num_scored, num_scored), strict=True):
            sentences = [compose(template, {"thing": thing}, rng).text for template in SAY["talk"] for thing in part]
            examples += [(text, kind) for text in rng.sample(sentences, count // len(first))]
    for examples in splits:
        rng.shuffle(examples)
    return splits


def names_examples(world: World, num_train: int, num_scored: int) -> Splits:
    """Sentences with names; those for training are from one half of the world, so that the others' names are new."""
    rng = Random(f"names {world.seed}")
    halves: tuple[dict[str, NamesExample], dict[str, NamesExample]] = ({}, {})
    wanted = (num_train, 2 * num_scored)
    names = [_names_of_half(world, group) for group in (0, 1)]
    for document in generate_documents(world, 2 * sum(wanted), purpose="names"):
        for sentence in document:
            found = {sentence.text[span.start : span.end] for span in sentence.spans if span.kind}
            for group in (0, 1):
                if found and found <= names[group] and len(halves[group]) < wanted[group] and rng.random() < 0.3:
                    halves[group].setdefault(sentence.text, tag_words(sentence))
    train, scored = (list(half.values()) for half in halves)
    assert (len(train), len(scored)) == wanted, "too few documents for so many sentences"
    return train, scored[:num_scored], scored[num_scored:]


def _names_of_half(world: World, group: int) -> set[str]:
    """Every way in which a name of one half of the world is written."""
    names = {firm.name for firm in world.firms if firm.group == group}
    names |= {name for town in world.towns if town.group == group for name in (town.name, town.country, town.river)}
    for person in world.people:
        if person.group == group:
            names |= {person.name, person.first_name, person.surname}
    return names


def tag_words(sentence: Sentence) -> NamesExample:
    """The sentence as words and BIO tags."""
    words, tags = [], []
    for match in re.finditer(r"\w+|[^\w\s]", sentence.text):
        inside = [span for span in sentence.spans if span.kind and span.start <= match.start() < span.end]
        words.append(match.group())
        tags.append(f"{'B' if match.start() == inside[0].start else 'I'}-{inside[0].kind}" if inside else "O")
    return tuple(words), tuple(tags)


def question_examples(world: World, num_train: int, num_scored: int) -> Splits:
    """Questions on passages; in half of the passages a second subject of the same kind offers wrong answers."""
    rng = Random(f"questions {world.seed}")
    asked, others = (question_subjects(world, for_training=for_training) for for_training in (True, False))
    halfway = len(others) // 2
    rng.shuffle(others)
    validation, test = others[:halfway], others[halfway:]
    return _questions(asked, num_train, rng), _questions(validation, num_scored, rng), _questions(test, num_scored, rng)


def _questions(subjects: list[Person | Firm], count: int, rng: Random) -> list[QuestionExample]:
    examples: dict[tuple[str, str], QuestionExample] = {}
    while len(examples) < count:
        subject = rng.choice(subjects)
        document, relations = passage_about(subject, rng.randrange(2, 4), rng)
        passage = join_sentences(document)
        distraction = join_sentences(distracting_passage(subject, subjects, rng)).text
        comes_first = rng.random() < 0.5
        before = f"{distraction} " if distraction and comes_first else ""
        after = f" {distraction}" if distraction and not comes_first else ""
        text = before + passage.text + after
        for relation in rng.sample(relations, min(2, len(relations))):
            question = tell(relation.questions, subject.slots, subject.trade, rng).text
            answers = tuple(
                (len(before) + span.start, passage.text[span.start : span.end])
                for span in passage.spans
                if span.slot == relation.slot
            )
            examples.setdefault((text, question), QuestionExample(text, question, answers))
    return list(examples.values())[:count]


def write_csv(path: Path, examples: Sequence[KindExample]) -> None:
    """Write a table of texts and labels."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("text", "label"), *examples])


def write_conll(path: Path, examples: Sequence[NamesExample]) -> None:
    """A word and its tag on each line, a blank line after each sentence."""
    sentences = ["".join(f"{word} {tag}\n" for word, tag in zip(*example, strict=True)) for example in examples]
    path.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")


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
