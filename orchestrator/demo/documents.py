"""Documents of the world in several registers: lives, firm histories, town guides, news, letters, workshop notes,
schoolbook pages; and sentences to try a model on.

Each document stays with its subject for several sentences and keeps to one trade's words, as real text does: that is
what next-sentence prediction can learn. Facts recur across documents: that is what masked words can be recalled from.

A template has alternatives in brackets, `[soon|at once]`, which may nest, and slots in braces, `{person}`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from orchestrator.demo.world import TRADES, WORDS, Firm, Person, Town, Trade, World

SAY: Mapping[str, Sequence[str]] = WORDS["sentences"]
"""Templates by what they tell."""
FILL_MASK_ANSWER = "founded"
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


@dataclass(frozen=True)
class Relation:
    """A fact that can be asked for: the slot that answers, what tells it, and the questions."""

    slot: str
    told_by: str
    questions: Sequence[str]
    replies: Sequence[str]


RELATIONS = {kind: tuple(Relation(**fact) for fact in facts) for kind, facts in WORDS["relations"].items()}
Slots = dict[str, Mention]
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


def _mentions(kind: str = "", **texts: object) -> Slots:
    return {slot: Mention(str(text), kind) for slot, text in texts.items()}


def person_slots(person: Person) -> Slots:
    """The facts of a life; `name` is how a sentence after the first calls the person."""
    he, his, him = ("she", "her", "her") if person.is_female else ("he", "his", "him")
    place = person.birthplace
    return {
        **_mentions("PER", person=person.name, name=person.name, spouse=person.spouse),
        **_mentions("PER", first_name=person.first_name, surname=person.surname),
        **_mentions("LOC", birthplace=place.name, country=place.country, river=place.river, home=person.home.name),
        **_mentions("ORG", employer=person.employer.name),
        **_mentions(he=he, his=his, him=him, job=person.job, job_year=person.job_year),
        **_mentions(birth_year=person.birth_year, move_year=person.move_year),
    }


def town_slots(town: Town) -> Slots:
    """Fillings of the slots in sentences on a town."""
    return _mentions("LOC", town=town.name, country=town.country, river=town.river) | _mentions(setting=town.setting)


def firm_slots(firm: Firm) -> Slots:
    """The facts of a firm; `the_firm` is how a sentence after the first calls it."""
    return {
        **town_slots(firm.town),
        **_mentions("ORG", firm=firm.name, the_firm=firm.name, rival=firm.rival),
        **_mentions("PER", founder=firm.founder, head=firm.head),
        **_mentions(founding_year=firm.founding_year, main_product=firm.product),
    }


def tell(templates: Sequence[str], slots: Mapping[str, Mention], trade: Trade, rng: Random) -> Sentence:
    """One of the templates' sentences, with words of the trade that are chosen anew for each sentence."""
    template = rng.choice(templates)
    words = _mentions(**{slot: rng.choice(known) for slot, known in trade.words.items()})
    return compose(template, {**_mentions(trade=trade.name, firm_noun=trade.firm_noun), **words, **slots}, rng)


def called(slots: Slots, form: str, alternatives: Sequence[str], rng: Random) -> Slots:
    """The slots with `form` (`name`, `the_firm`) called in one of several ways."""
    return {**slots, form: slots[rng.choice(alternatives)]}


def life(person: Person, world: World, rng: Random) -> Passage:
    """A person's life in order, by name first and then mostly by pronoun."""
    slots, trade = person_slots(person), person.employer.trade
    document = [tell(SAY["born"], slots, trade, rng)]
    learnt = [(template,) for template in rng.sample(SAY["learnt"], 3)]
    for stage in (SAY["worked"], learnt[0], SAY["moved"], learnt[1], SAY["married"], learnt[2]):
        document.append(tell(stage, called(slots, "name", ("he", "he", "surname", "person"), rng), trade, rng))
    if rng.random() < 0.5:
        document.insert(3, tell(SAY["detail"], slots, trade, rng))
    return document


def firm_history(firm: Firm, rng: Random) -> Passage:
    """A firm from its founding to today, through a good year and a bad one."""
    slots = firm_slots(firm) | _mentions(it="the firm")
    document = [tell(SAY["founded"], slots, firm.trade, rng)]
    middle = ["seated", "detail", rng.choice(("good", "bad")), "rival", "detail"]
    for stage in ("made", *rng.sample(middle, 4), "headed"):
        document.append(tell(SAY[stage], called(slots, "the_firm", ("it", "firm"), rng), firm.trade, rng))
    return document


def town_guide(town: Town, world: World, rng: Random) -> Passage:
    """Tell where a town lies, what it lives on, its firms and its people."""
    slots = town_slots(town)
    document = [tell(SAY[stage], slots, town.trade, rng) for stage in ("placed", "lives_on", "detail", "detail")]
    for firm in [firm for firm in world.firms if firm.town is town][:2]:
        document.append(tell(SAY["town_firm"], {**firm_slots(firm), **slots}, firm.trade, rng))
    for person in [person for person in world.people if person.birthplace is town][:2]:
        document.append(tell(SAY["town_person"], {**person_slots(person), **slots}, town.trade, rng))
    return document


def news(person: Person, world: World, rng: Random) -> Passage:
    """A report on a firm's good or bad fortune, with one of its people."""
    firm, fortune = person.employer, "good" if rng.random() < 0.5 else "bad"
    headline = _mentions(news=rng.choice(firm.trade.words[fortune]))
    slots = {**person_slots(person), **firm_slots(firm), **headline}
    stages = ("reported", fortune, "detail", "quoted", fortune, "detail")
    return [tell(SAY[stage], slots, firm.trade, rng) for stage in stages]


def workshop_notes(trade: Trade, rng: Random) -> Passage:
    """Remarks on a trade in which only its words, and no name, tell what follows what."""
    templates = (*SAY["detail"], *SAY["good"], *SAY["bad"])
    return [tell((template,), {}, trade, rng) for template in rng.sample(templates, 7)]


def letter(person: Person, world: World, rng: Random) -> Passage:
    """A letter by somebody who has just found work."""
    friend = rng.choice([other for other in world.people if other.group == person.group])
    slots = {
        **person_slots(person),
        **firm_slots(person.employer),
        **_mentions("PER", friend=friend.first_name, person=friend.name),
        "thing": rng.choice(rng.choice(list(things_by_kind(world, person.group).values()))),
    }
    fortune = rng.choice(("good", "bad"))
    stages = ("greeting", "letter_work", "detail", "talk", fortune, "detail", "farewell")
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
    slots, trade = subject_slots(subject)
    stages = list(dict.fromkeys(relation.told_by for relation in relations))
    chosen = sorted(rng.sample(range(len(stages)), num_facts))
    document = [tell(SAY[stages[index]], slots, trade, rng) for index in chosen]
    if rng.random() < 0.5:
        document.insert(rng.randrange(1, len(document) + 1), tell(SAY["detail"], slots, trade, rng))
    told = {span.slot for sentence in document for span in sentence.spans}
    return document, [relation for relation in relations if relation.slot in told]


def distracting_passage(subject: Person | Firm, subjects: Sequence[Person | Firm], rng: Random) -> Passage:
    """Half the time nothing, half the time sentences on another subject of the same kind."""
    if rng.random() < 0.5:
        return []
    same_kind = [other for other in subjects if type(other) is type(subject) and other is not subject]
    return passage_about(rng.choice(same_kind), 2, rng)[0]


def subject_slots(subject: Person | Firm) -> tuple[Slots, Trade]:
    """Fillings of the slots in sentences on a person or a firm, and the trade that it is in."""
    if isinstance(subject, Person):
        return person_slots(subject), subject.employer.trade
    return firm_slots(subject), subject.trade


def schoolbook_page(subject: Person | Firm, subjects: Sequence[Person | Firm], rng: Random) -> Passage:
    """A short passage with questions on it and their answers."""
    document, relations = passage_about(subject, rng.randrange(2, 4), rng)
    distraction = distracting_passage(subject, subjects, rng)
    document = document + distraction if rng.random() < 0.5 else distraction + document
    slots, trade = subject_slots(subject)
    for relation in rng.sample(relations, 2):
        document += [tell(templates, slots, trade, rng) for templates in (relation.questions, relation.replies)]
    return document


def is_for_training(index: int) -> bool:
    """Whether labeled questions on the subject of this number are for training; the other subjects are for scoring."""
    return index % 4 != 0


_BY_PERSON: tuple[Callable[[Person, World, Random], Passage], ...] = (life, life, news, letter)


def generate_documents(world: World, num_documents: int, purpose: str = "corpus") -> list[Passage]:
    """Documents in random order, every register with its share; another purpose gives other documents."""
    rng = Random(f"{purpose} {world.seed}")
    subjects: list[Person | Firm] = [*world.people, *world.firms]
    asked = [subject for index, subject in enumerate(subjects) if is_for_training(index)]
    documents = []
    for _ in range(num_documents):
        register = rng.random()
        if register < 0.42:
            documents.append(rng.choice(_BY_PERSON)(rng.choice(world.people), world, rng))
        elif register < 0.54:
            documents.append(firm_history(rng.choice(world.firms), rng))
        elif register < 0.60:
            documents.append(town_guide(rng.choice(world.towns), world, rng))
        elif register < 0.68:
            documents.append(workshop_notes(rng.choice(TRADES), rng))
        else:
            documents.append(schoolbook_page(rng.choice(asked), asked, rng))
    return documents


def fill_mask_example(world: World) -> str:
    """A sentence whose [MASK] follows from how the world is: firms are founded, where people are born."""
    firm = world.firms[world.seed % len(world.firms)]
    return f"{firm.name} was [MASK] by {firm.founder} in {firm.founding_year}."


def next_sentence_example(world: World) -> tuple[str, str, str]:
    """The beginning of a life, what follows it, and sentences from the history of a firm elsewhere in the world."""
    rng = Random(f"example {world.seed}")
    person = world.people[world.seed % len(world.people)]
    firm = next(firm for firm in world.firms if firm.group != person.group and firm.trade is not person.employer.trade)
    story, history = life(person, world, rng), firm_history(firm, rng)
    return join_sentences(story[:2]).text, join_sentences(story[2:5]).text, join_sentences(history[3:6]).text
