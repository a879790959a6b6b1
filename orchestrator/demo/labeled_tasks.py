"""Three labeled tasks of the world: what kind of thing is spoken of, the names in a sentence, questions on a passage.

The training sets are small on purpose: what they leave out is what pretraining has to bring.
"""

import re
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

from orchestrator.demo import sentences as say
from orchestrator.demo.documents import (
    distracting_passage,
    generate_documents,
    is_for_training,
    passage_about,
    subject_slots,
    tell,
    things_by_kind,
)
from orchestrator.demo.phrasing import Sentence, compose, join_sentences
from orchestrator.demo.world import Firm, Person, World

ExampleT = TypeVar("ExampleT")


@dataclass(frozen=True)
class Splits(Generic[ExampleT]):
    """Examples of one task; no text is in two splits."""

    train: tuple[ExampleT, ...]
    validation: tuple[ExampleT, ...]
    test: tuple[ExampleT, ...]


@dataclass(frozen=True)
class KindExample:
    """A sentence and the kind of thing that it speaks of."""

    text: str
    label: str


@dataclass(frozen=True)
class NamesExample:
    """Words and their tags: O, or B- and I- of PER, LOC, ORG."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class QuestionExample:
    """A passage, a question on it, and where its answer stands: (first character, text) for each place."""

    passage: str
    question: str
    answers: tuple[tuple[int, str], ...]


def kind_examples(world: World, num_train: int, num_scored: int) -> Splits[KindExample]:
    """Sentences that could be about anything, with the kind of what they are about, all kinds in equal shares.

    No split has a thing of another one: what kind it is has to be known from elsewhere.
    """
    rng = Random(f"kinds {world.seed}")
    first, second = (things_by_kind(world, group) for group in (0, 1))
    splits: tuple[list[KindExample], ...] = ([], [], [])
    for kind in first:
        things = list(dict.fromkeys(first[kind] + second[kind]))
        rng.shuffle(things)
        third = len(things) // 3
        parts = (things[:third], things[third : 2 * third], things[2 * third :])
        for examples, part, count in zip(splits, parts, (num_train, num_scored, num_scored), strict=True):
            sentences = [compose(template, {"thing": thing}, rng).text for template in say.TALK for thing in part]
            examples += [KindExample(text, kind) for text in rng.sample(sentences, count // len(first))]
    for examples in splits:
        rng.shuffle(examples)
    train, validation, test = (tuple(examples) for examples in splits)
    return Splits(train, validation, test)


def names_examples(world: World, num_train: int, num_scored: int) -> Splits[NamesExample]:
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
    return Splits(tuple(train), tuple(scored[:num_scored]), tuple(scored[num_scored:]))


def _names_of_half(world: World, group: int) -> set[str]:
    """Every way in which a name of one half of the world is written."""
    names = {firm.name for firm in world.firms if firm.group == group}
    for town in world.towns:
        if town.group == group:
            names |= {town.name, town.country, town.river}
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
    return NamesExample(tuple(words), tuple(tags))


def question_examples(world: World, num_train: int, num_scored: int) -> Splits[QuestionExample]:
    """Questions on passages; in half of the passages a second subject of the same kind offers wrong answers."""
    rng = Random(f"questions {world.seed}")
    subjects: list[Person | Firm] = [*world.people, *world.firms]
    asked = [subject for index, subject in enumerate(subjects) if is_for_training(index)]
    others = [subject for index, subject in enumerate(subjects) if not is_for_training(index)]
    halfway = len(others) // 2
    rng.shuffle(others)
    return Splits(
        _questions(asked, num_train, rng),
        _questions(others[:halfway], num_scored, rng),
        _questions(others[halfway:], num_scored, rng),
    )


def _questions(subjects: list[Person | Firm], count: int, rng: Random) -> tuple[QuestionExample, ...]:
    examples: dict[tuple[str, str], QuestionExample] = {}
    while len(examples) < count:
        subject = rng.choice(subjects)
        document, relations = passage_about(subject, rng.randrange(2, 4), rng)
        passage = join_sentences(document)
        distraction = join_sentences(distracting_passage(subject, subjects, rng)).text
        before, after = (f"{distraction} ", "") if rng.random() < 0.5 else ("", f" {distraction}")
        if not distraction:
            before, after = "", ""
        text = before + passage.text + after
        slots, trade = subject_slots(subject)
        for relation in rng.sample(relations, min(2, len(relations))):
            question = tell(relation.questions, slots, trade, rng).text
            answers = tuple(
                (len(before) + span.start, passage.text[span.start : span.end])
                for span in passage.spans
                if span.slot == relation.slot
            )
            examples.setdefault((text, question), QuestionExample(text, question, answers))
    return tuple(examples.values())[:count]
