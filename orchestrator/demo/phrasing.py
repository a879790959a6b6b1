"""Sentences from templates that keep track of where each fact and name went.

A template has alternatives in brackets, `[soon|at once]`, which may nest, and slots in braces, `{person}`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

_ALTERNATIVES = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Mention:
    """Filling of a slot: its text and, for a name, its kind (PER, LOC, ORG)."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class NamedSpan:
    """Characters [start, end) of a sentence that one slot filled."""

    start: int
    end: int
    slot: str
    kind: str


@dataclass(frozen=True)
class Sentence:
    """A sentence and its filled slots, from left to right."""

    text: str
    spans: tuple[NamedSpan, ...] = ()


def compose(template: str, slots: Mapping[str, Mention], rng: Random) -> Sentence:
    """One sentence of the template: alternatives chosen at random, slots filled, the first letter made capital.

    >>> compose("{person} sang.", {"person": Mention("Ivy Low", "PER")}, Random(0)).spans
    (NamedSpan(start=0, end=7, slot='person', kind='PER'),)
    """
    while match := _ALTERNATIVES.search(template):
        chosen = rng.choice(match.group(1).split("|"))
        template = template[: match.start()] + chosen + template[match.end() :]
    text, spans, rest = "", [], 0
    for match in _SLOT.finditer(template):
        mention = slots[match.group(1)]
        text += template[rest : match.start()]
        spans.append(NamedSpan(len(text), len(text) + len(mention.text), match.group(1), mention.kind))
        text += mention.text
        rest = match.end()
    text += template[rest:]
    return Sentence(text[0].upper() + text[1:], tuple(spans))


def join_sentences(sentences: Sequence[Sentence]) -> Sentence:
    """The sentences as one text with a space between them; the spans are moved along."""
    text, spans = "", []
    for sentence in sentences:
        offset = len(text) + 1 if text else 0
        text = f"{text} {sentence.text}" if text else sentence.text
        spans += [NamedSpan(s.start + offset, s.end + offset, s.slot, s.kind) for s in sentence.spans]
    return Sentence(text, tuple(spans))
