"""The generated world behind the demo: countries, towns, people and firms, the facts between them, and text that tells
of them in several registers: lives, firm histories, town guides, news, letters, workshop notes, schoolbook pages.

Each document stays with its subject for several sentences and keeps to one trade's words, as real text does: that is
what next-sentence prediction can learn. Facts recur across documents: that is what masked words can be recalled from.

Words and sentences are in world.yaml. A template has alternatives in brackets, `[soon|at once]`, which may nest, and
slots in braces, `{person}`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import yaml

WORDS: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("world.yaml").read_text("utf-8"))


@dataclass(frozen=True)
class Trade:
    """A trade and its words by the slot of a sentence that they fill: `worker`, `product`, `tool` and so on."""

    name: str
    firm_noun: str
    words: Mapping[str, Sequence[str]]


TRADES = tuple(Trade(**trade) for trade in WORDS["trades"])
HALVES: Sequence[Mapping[str, Sequence[str]]] = WORDS["halves"]
# Few names, each told of often: a tiny model learns soon what surrounds them.
TOWNS_PER_GROUP, PEOPLE_PER_GROUP, FIRMS_PER_GROUP = 12, 50, 24
SURNAMES_PER_GROUP, FIRM_NAMES_PER_GROUP = 30, 10


@dataclass(frozen=True)
class Mention:
    """Filling of a slot: its text and, for a name, its kind (PER, LOC, ORG)."""

    text: str
    kind: str = ""


Slots = dict[str, Mention]


def _mentions(kind: str = "", **texts: object) -> Slots:
    return {slot: Mention(str(text), kind) for slot, text in texts.items()}


@dataclass(frozen=True)
class Town:
    """A town, where it lies and what it lives on."""

    name: str
    group: int  # which half of the world; the halves share no names
    country: str
    river: str
    setting: str
    trade: Trade

    @property
    def slots(self) -> Slots:
        names = _mentions("LOC", town=self.name, country=self.country, river=self.river)
        return names | _mentions(setting=self.setting)


@dataclass(frozen=True)
class Firm:
    """A firm and its trade; its people are given by full name, its rival (of the same trade) by name."""

    name: str
    group: int
    trade: Trade
    product: str
    town: Town
    founder: str
    founding_year: int
    head: str
    rival: str

    @property
    def slots(self) -> Slots:
        """Facts of a firm; `the_firm` is its name in sentences after the first."""
        return {
            **self.town.slots,
            **_mentions("ORG", firm=self.name, the_firm=self.name, rival=self.rival),
            **_mentions("PER", founder=self.founder, head=self.head),
            **_mentions(founding_year=self.founding_year, main_product=self.product),
        }


@dataclass(frozen=True)
class Person:
    """A person and the outline of a life: born, employed, moved, married."""

    name: str  # first name and surname
    group: int
    is_female: bool
    birth_year: int
    birthplace: Town
    employer: Firm
    job: str
    job_year: int
    home: Town
    move_year: int
    spouse: str

    @property
    def first_name(self) -> str:
        return self.name.split()[0]

    @property
    def surname(self) -> str:
        return self.name.split()[1]

    @property
    def trade(self) -> Trade:
        return self.employer.trade

    @property
    def slots(self) -> Slots:
        """The facts of a life; `name` is how a sentence after the first calls the person."""
        he, his, him = ("she", "her", "her") if self.is_female else ("he", "his", "him")
        place = self.birthplace
        return {
            **_mentions("PER", person=self.name, name=self.name, spouse=self.spouse),
            **_mentions("PER", first_name=self.first_name, surname=self.surname),
            **_mentions("LOC", birthplace=place.name, country=place.country, river=place.river, home=self.home.name),
            **_mentions("ORG", employer=self.employer.name),
            **_mentions(he=he, his=his, him=him, job=self.job, job_year=self.job_year),
            **_mentions(birth_year=self.birth_year, move_year=self.move_year),
        }


@dataclass(frozen=True)
class World:
    """Everything there is; a pure function of the seed."""

    seed: int
    towns: tuple[Town, ...]
    firms: tuple[Firm, ...]
    people: tuple[Person, ...]


def generate_world(seed: int) -> World:
    rng = Random(f"world {seed}")
    halves = [_generate_half(group, rng) for group in (0, 1)]
    towns, firms, people = (tuple(one for part in parts for one in part) for parts in zip(*halves, strict=True))
    return World(seed, towns, firms, people)


def _generate_half(group: int, rng: Random) -> tuple[list[Town], list[Firm], list[Person]]:
    half = HALVES[group]
    names = [f"{start}{end}".capitalize() for start in half["name_starts"] for end in WORDS["name_ends"]]
    rng.shuffle(names)
    counts = (TOWNS_PER_GROUP, FIRM_NAMES_PER_GROUP, SURNAMES_PER_GROUP)
    town_names, firm_names, surnames = ([names.pop() for _ in range(count)] for count in counts)
    surnames += town_names[:4]  # as in life, some families are called after a town
    is_female: dict[str, bool] = {}
    while len(is_female) < PEOPLE_PER_GROUP:
        female = len(is_female) % 2 == 0
        first_name = rng.choice(half["female_names" if female else "male_names"])
        is_female.setdefault(f"{first_name} {rng.choice(surnames)}", female)
    towns = [
        Town(
            name=name,
            group=group,
            country=half["countries"][index % len(half["countries"])],
            river=rng.choice(half["rivers"]),
            setting=rng.choice(WORDS["settings"]),
            trade=TRADES[index % len(TRADES)],
        )
        for index, name in enumerate(town_names)
    ]
    firms = _generate_firms(group, towns, firm_names, list(is_female), rng)
    return towns, firms, [_generate_person(group, name, is_female, towns, firms, rng) for name in is_female]


def _generate_firms(
    group: int, towns: list[Town], firm_names: list[str], people_names: list[str], rng: Random
) -> list[Firm]:
    """Firms called after a family or by a word of their own; each name once."""
    names: set[str] = set()
    while len(names) < FIRMS_PER_GROUP:
        stem = rng.choice((rng.choice(people_names).split()[1], rng.choice(firm_names), rng.choice(firm_names)))
        names.add(f"{stem} {rng.choice(WORDS['firm_endings'])}")
    ordered, firms = sorted(names), []
    for index, name in enumerate(ordered):
        trade = TRADES[index % len(TRADES)]
        founder, head = rng.sample(people_names, 2)
        firms.append(
            Firm(
                name=name,
                group=group,
                trade=trade,
                product=rng.choice(trade.words["product"]),
                town=rng.choice(towns),
                founder=founder,
                founding_year=rng.randrange(1860, 1900),
                head=head,
                rival=ordered[(index + len(TRADES)) % len(ordered)],  # the next firm of the same trade
            )
        )
    return firms


def _generate_person(
    group: int, name: str, is_female: Mapping[str, bool], towns: list[Town], firms: list[Firm], rng: Random
) -> Person:
    birth_year = rng.randrange(1870, 1910)
    job_year = birth_year + rng.randrange(16, 26)
    employer = rng.choice(firms)
    birthplace, home = rng.sample(towns, 2)
    return Person(
        name=name,
        group=group,
        is_female=is_female[name],
        birth_year=birth_year,
        birthplace=birthplace,
        employer=employer,
        job=rng.choice(employer.trade.words["worker"]),
        job_year=job_year,
        home=home,
        move_year=job_year + rng.randrange(2, 15),
        spouse=rng.choice([other for other, female in is_female.items() if female != is_female[name]]),
    )


SAY: Mapping[str, Sequence[str]] = WORDS["sentences"]
"""Templates by what they tell."""
_ALTERNATIVES = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")


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


@dataclass(frozen=True)
class Relation:
    """A fact that can be asked for: the slot that answers, what tells it, and the questions."""

    slot: str
    told_by: str
    questions: Sequence[str]
    replies: Sequence[str]


RELATIONS = {kind: tuple(Relation(**fact) for fact in facts) for kind, facts in WORDS["relations"].items()}
Passage = list[Sentence]


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
        text += " " if text else ""
        spans += [replace(s, start=s.start + len(text), end=s.end + len(text)) for s in sentence.spans]
        text += sentence.text
    return Sentence(text, tuple(spans))


def tell(templates: Sequence[str], slots: Mapping[str, Mention], trade: Trade, rng: Random) -> Sentence:
    """One of the templates' sentences, with words of the trade that are chosen anew for each sentence."""
    template = rng.choice(templates)
    words = _mentions(**{slot: rng.choice(known) for slot, known in trade.words.items()})
    return compose(template, {**_mentions(trade=trade.name, firm_noun=trade.firm_noun), **words, **slots}, rng)


def called(slots: Slots, form: str, alternatives: Sequence[str], rng: Random) -> Slots:
    """The slots with `form` (`name`, `the_firm`) called in one of several ways."""
    return {**slots, form: slots[rng.choice(alternatives)]}


def life(person: Person, rng: Random) -> Passage:
    """A person's life in order, by name first and then mostly by pronoun."""
    slots, trade = person.slots, person.trade
    document = [tell(SAY["born"], slots, trade, rng)]
    learnt = [(template,) for template in rng.sample(SAY["learnt"], 3)]
    for stage in (SAY["worked"], learnt[0], SAY["moved"], learnt[1], SAY["married"], learnt[2]):
        document.append(tell(stage, called(slots, "name", ("he", "he", "surname", "person"), rng), trade, rng))
    if rng.random() < 0.5:
        document.insert(3, tell(SAY["detail"], slots, trade, rng))
    return document


def firm_history(firm: Firm, rng: Random) -> Passage:
    """A firm from its founding to today, through a good year and a bad one."""
    slots = firm.slots | _mentions(it="the firm")
    document = [tell(SAY["founded"], slots, firm.trade, rng)]
    middle = ["seated", "detail", rng.choice(("good", "bad")), "rival", "detail"]
    for stage in ("made", *rng.sample(middle, 4), "headed"):
        document.append(tell(SAY[stage], called(slots, "the_firm", ("it", "firm"), rng), firm.trade, rng))
    return document


def town_guide(town: Town, world: World, rng: Random) -> Passage:
    """Tell where a town lies, what it lives on, its firms and its people."""
    slots = town.slots
    document = [tell(SAY[stage], slots, town.trade, rng) for stage in ("placed", "lives_on", "detail", "detail")]
    for firm in [firm for firm in world.firms if firm.town is town][:2]:
        document.append(tell(SAY["town_firm"], {**firm.slots, **slots}, firm.trade, rng))
    for person in [person for person in world.people if person.birthplace is town][:2]:
        document.append(tell(SAY["town_person"], {**person.slots, **slots}, town.trade, rng))
    return document


def news(person: Person, rng: Random) -> Passage:
    """A report on a firm's good or bad fortune, with one of its people."""
    firm, fortune = person.employer, "good" if rng.random() < 0.5 else "bad"
    slots = {**person.slots, **firm.slots, **_mentions(news=rng.choice(firm.trade.words[fortune]))}
    stages = ("reported", fortune, "detail", "quoted", fortune, "detail")
    return [tell(SAY[stage], slots, firm.trade, rng) for stage in stages]


def workshop_notes(trade: Trade, rng: Random) -> Passage:
    """Remarks on a trade in which only its words, and no name, tell what follows what."""
    templates = (*SAY["detail"], *SAY["good"], *SAY["bad"])
    return [tell((template,), {}, trade, rng) for template in rng.sample(templates, 7)]


def letter(world: World, person: Person, rng: Random) -> Passage:
    """A letter by somebody who has just found work."""
    friend = rng.choice([other for other in world.people if other.group == person.group])
    slots = {
        **person.slots,
        **person.employer.slots,
        **_mentions("PER", friend=friend.first_name, person=friend.name),
        "thing": rng.choice(rng.choice(list(things_by_kind(world, person.group).values()))),
    }
    stages = ("greeting", "letter_work", "detail", "talk", rng.choice(("good", "bad")), "detail", "farewell")
    return [tell(SAY[stage], slots, person.employer.trade, rng) for stage in stages]


def things_by_kind(world: World, group: int) -> dict[str, tuple[Mention, ...]]:
    """List what can be spoken of in one half of the world, by kind; families called after a town are left out."""
    towns = [town.name for town in world.towns if town.group == group]
    surnames = {person.surname for person in world.people if person.group == group} - set(towns)

    def words(slot: str, article: str = "") -> tuple[Mention, ...]:
        return tuple(Mention(f"{article}{word}") for trade in TRADES for word in trade.words[slot])

    return {
        "person": tuple(Mention(name, "PER") for name in sorted(surnames)),
        "place": tuple(Mention(name, "LOC") for name in towns),
        "firm": tuple(Mention(firm.name, "ORG") for firm in world.firms if firm.group == group),
        "profession": words("worker", "a "),
        "product": words("product"),
        "material": words("material"),
        "tool": words("tool", "the "),
        "workplace": words("room", "the "),
    }


def passage_about(subject: Person | Firm, num_facts: int, rng: Random) -> tuple[Passage, list[Relation]]:
    """A few sentences that name their subject each time, and the relations that they tell."""
    relations = RELATIONS["person" if isinstance(subject, Person) else "firm"]
    stages = list(dict.fromkeys(relation.told_by for relation in relations))
    chosen = sorted(rng.sample(range(len(stages)), num_facts))
    document = [tell(SAY[stages[index]], subject.slots, subject.trade, rng) for index in chosen]
    if rng.random() < 0.5:
        document.insert(rng.randrange(1, len(document) + 1), tell(SAY["detail"], subject.slots, subject.trade, rng))
    told = {span.slot for sentence in document for span in sentence.spans}
    return document, [relation for relation in relations if relation.slot in told]


def distracting_passage(subject: Person | Firm, subjects: Sequence[Person | Firm], rng: Random) -> Passage:
    """Half the time nothing, half the time sentences on another subject of the same kind."""
    if rng.random() < 0.5:
        return []
    same_kind = [other for other in subjects if type(other) is type(subject) and other is not subject]
    return passage_about(rng.choice(same_kind), 2, rng)[0]


def schoolbook_page(subject: Person | Firm, subjects: Sequence[Person | Firm], rng: Random) -> Passage:
    """A short passage with questions on it and their answers."""
    document, relations = passage_about(subject, rng.randrange(2, 4), rng)
    distraction = distracting_passage(subject, subjects, rng)
    document = document + distraction if rng.random() < 0.5 else distraction + document
    for relation in rng.sample(relations, 2):
        document += [
            tell(templates, subject.slots, subject.trade, rng) for templates in (relation.questions, relation.replies)
        ]
    return document


def question_subjects(world: World, *, for_training: bool) -> list[Person | Firm]:
    """Subjects of labeled questions: three of four are for training, the others for scoring."""
    subjects: list[Person | Firm] = [*world.people, *world.firms]
    return [subject for number, subject in enumerate(subjects) if (number % 4 != 0) is for_training]


def generate_documents(world: World, num_documents: int, purpose: str = "corpus") -> list[Passage]:
    """Documents in random order, every register with its share; another purpose gives other documents."""
    rng = Random(f"{purpose} {world.seed}")
    asked = question_subjects(world, for_training=True)
    by_person: tuple[Callable[[Person, Random], Passage], ...] = (life, life, news, partial(letter, world))
    documents = []
    for _ in range(num_documents):
        register = rng.random()
        if register < 0.42:
            documents.append(rng.choice(by_person)(rng.choice(world.people), rng))
        elif register < 0.54:
            documents.append(firm_history(rng.choice(world.firms), rng))
        elif register < 0.60:
            documents.append(town_guide(rng.choice(world.towns), world, rng))
        elif register < 0.68:
            documents.append(workshop_notes(rng.choice(TRADES), rng))
        else:
            documents.append(schoolbook_page(rng.choice(asked), asked, rng))
    return documents
