"""Documents of the world in several registers: lives, firm histories, town guides, news, letters, workshop notes,
schoolbook pages.

Each document stays with its subject for several sentences and keeps to one trade's words, as real text does: that is
what next-sentence prediction can learn. Facts recur across documents: that is what masked words can be recalled from.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random

from orchestrator.demo import sentences as say
from orchestrator.demo.lexicon import TRADES, Trade
from orchestrator.demo.phrasing import Mention, Sentence, compose
from orchestrator.demo.world import Firm, Person, Town, World

Slots = dict[str, Mention]
Passage = list[Sentence]


def trade_slots(trade: Trade, rng: Random) -> Slots:
    """Words of the trade, chosen anew for each sentence."""
    return {
        "trade": Mention(trade.name),
        "firm_noun": Mention(trade.firm_noun),
        "worker": Mention(rng.choice(trade.workers)),
        "product": Mention(rng.choice(trade.products)),
        "material": Mention(rng.choice(trade.materials)),
        "tool": Mention(rng.choice(trade.tools)),
        "room": Mention(rng.choice(trade.rooms)),
        "act": Mention(rng.choice(trade.acts)),
        "skill": Mention(rng.choice(trade.skills)),
        "good": Mention(rng.choice(trade.good_news)),
        "bad": Mention(rng.choice(trade.bad_news)),
    }


def person_slots(person: Person) -> Slots:
    """The facts of a life; `name` is how a sentence after the first calls the person."""
    he, his, him = ("she", "her", "her") if person.is_female else ("he", "his", "him")
    return {
        "person": Mention(person.name, "PER"),
        "name": Mention(person.name, "PER"),
        "first_name": Mention(person.first_name, "PER"),
        "surname": Mention(person.surname, "PER"),
        "he": Mention(he),
        "his": Mention(his),
        "him": Mention(him),
        "job": Mention(person.job),
        "job_year": Mention(str(person.job_year)),
        "employer": Mention(person.employer.name, "ORG"),
        "birthplace": Mention(person.birthplace.name, "LOC"),
        "birth_year": Mention(str(person.birth_year)),
        "country": Mention(person.birthplace.country, "LOC"),
        "river": Mention(person.birthplace.river, "LOC"),
        "home": Mention(person.home.name, "LOC"),
        "move_year": Mention(str(person.move_year)),
        "spouse": Mention(person.spouse, "PER"),
    }


def town_slots(town: Town) -> Slots:
    """Fillings of the slots in sentences on a town."""
    return {
        "town": Mention(town.name, "LOC"),
        "country": Mention(town.country, "LOC"),
        "river": Mention(town.river, "LOC"),
        "setting": Mention(town.setting),
    }


def firm_slots(firm: Firm) -> Slots:
    """The facts of a firm; `the_firm` is how a sentence after the first calls it."""
    return {
        **town_slots(firm.town),
        "firm": Mention(firm.name, "ORG"),
        "the_firm": Mention(firm.name, "ORG"),
        "founder": Mention(firm.founder, "PER"),
        "founding_year": Mention(str(firm.founding_year)),
        "main_product": Mention(firm.product),
        "head": Mention(firm.head, "PER"),
        "rival": Mention(firm.rival, "ORG"),
    }


def tell(templates: Sequence[str], slots: Mapping[str, Mention], trade: Trade, rng: Random) -> Sentence:
    """One of the templates' sentences, with words of the trade."""
    return compose(rng.choice(templates), {**trade_slots(trade, rng), **slots}, rng)


def called(slots: Slots, form: str, alternatives: Sequence[str], rng: Random) -> Slots:
    """The slots with `form` (`name`, `the_firm`) called in one of several ways."""
    return {**slots, form: slots[rng.choice(alternatives)]}


def life(person: Person, world: World, rng: Random) -> Passage:
    """A person's life in order, by name first and then mostly by pronoun."""
    slots, trade = person_slots(person), person.employer.trade
    document = [tell(say.BORN, slots, trade, rng)]
    learnt = [(template,) for template in rng.sample(say.LEARNT, 3)]
    for stage in (say.WORKED, learnt[0], say.MOVED, learnt[1], say.MARRIED, learnt[2]):
        document.append(tell(stage, called(slots, "name", ("he", "he", "surname", "person"), rng), trade, rng))
    if rng.random() < 0.5:
        document.insert(3, tell(say.DETAIL, slots, trade, rng))
    return document


def firm_history(firm: Firm, world: World, rng: Random) -> Passage:
    """A firm from its founding to today, through a good year and a bad one."""
    slots = {**firm_slots(firm), "it": Mention("the firm")}
    document = [tell(say.FOUNDED, slots, firm.trade, rng)]
    middle = [say.SEATED, say.DETAIL, rng.choice((say.GOOD, say.BAD)), say.RIVAL, say.DETAIL]
    for stage in (say.MADE, *rng.sample(middle, 4), say.HEADED):
        document.append(tell(stage, called(slots, "the_firm", ("it", "firm"), rng), firm.trade, rng))
    return document


def town_guide(town: Town, world: World, rng: Random) -> Passage:
    """Tell where a town lies, what it lives on, its firms and its people."""
    slots = town_slots(town)
    document = [tell(say.PLACED, slots, town.trade, rng), tell(say.LIVES_ON, slots, town.trade, rng)]
    document += [tell(say.DETAIL, slots, town.trade, rng) for _ in range(2)]
    for firm in [firm for firm in world.firms if firm.town is town][:2]:
        document.append(tell(say.TOWN_FIRM, {**firm_slots(firm), **slots}, firm.trade, rng))
    for person in [person for person in world.people if person.birthplace is town][:2]:
        document.append(tell(say.TOWN_PERSON, {**person_slots(person), **slots}, town.trade, rng))
    return document


def news(person: Person, world: World, rng: Random) -> Passage:
    """A report on a firm's good or bad fortune, with one of its people."""
    firm, is_good = person.employer, rng.random() < 0.5
    trade = firm.trade
    headline = Mention(rng.choice(trade.good_news if is_good else trade.bad_news))
    slots = {**person_slots(person), **firm_slots(firm), "news": headline}
    fortune = say.GOOD if is_good else say.BAD
    stages = (say.REPORTED, fortune, say.DETAIL, say.QUOTED, fortune, say.DETAIL)
    return [tell(stage, slots, trade, rng) for stage in stages]


def workshop_notes(trade: Trade, rng: Random) -> Passage:
    """Remarks on a trade in which only its words, and no name, tell what follows what."""
    templates = (*say.DETAIL, *say.GOOD, *say.BAD)
    return [tell((template,), {}, trade, rng) for template in rng.sample(templates, 7)]


def letter(person: Person, world: World, rng: Random) -> Passage:
    """A letter by somebody who has just found work."""
    friend = rng.choice([other for other in world.people if other.group == person.group])
    slots = {
        **person_slots(person),
        **firm_slots(person.employer),
        "friend": Mention(friend.first_name, "PER"),
        "person": Mention(friend.name, "PER"),
        "thing": rng.choice(rng.choice(list(things_by_kind(world, person.group).values()))),
    }
    fortune = rng.choice((say.GOOD, say.BAD))
    stages = (say.GREETING, say.LETTER_WORK, say.DETAIL, say.TALK, fortune, say.DETAIL, say.FAREWELL)
    return [tell(stage, slots, person.employer.trade, rng) for stage in stages]


def things_by_kind(world: World, group: int) -> dict[str, tuple[Mention, ...]]:
    """List what can be spoken of in one half of the world, by kind; families called after a town are left out."""
    towns = [town.name for town in world.towns if town.group == group]
    surnames = {person.surname for person in world.people if person.group == group} - set(towns)
    return {
        "person": tuple(Mention(name, "PER") for name in sorted(surnames)),
        "place": tuple(Mention(name, "LOC") for name in towns),
        "firm": tuple(Mention(firm.name, "ORG") for firm in world.firms if firm.group == group),
        "profession": tuple(Mention(f"a {worker}") for trade in TRADES for worker in trade.workers),
        "product": tuple(Mention(product) for trade in TRADES for product in trade.products),
        "material": tuple(Mention(material) for trade in TRADES for material in trade.materials),
        "tool": tuple(Mention(f"the {tool}") for trade in TRADES for tool in trade.tools),
        "workplace": tuple(Mention(f"the {room}") for trade in TRADES for room in trade.rooms),
    }


def passage_about(subject: Person | Firm, num_facts: int, rng: Random) -> tuple[Passage, list[say.Relation]]:
    """A few sentences that name their subject each time, and the relations that they tell."""
    relations = say.PERSON_RELATIONS if isinstance(subject, Person) else say.FIRM_RELATIONS
    slots, trade = subject_slots(subject)
    stages = list(dict.fromkeys(relation.told_by for relation in relations))
    chosen = sorted(rng.sample(range(len(stages)), num_facts))
    document = [tell(stages[index], slots, trade, rng) for index in chosen]
    if rng.random() < 0.5:
        document.insert(rng.randrange(1, len(document) + 1), tell(say.DETAIL, slots, trade, rng))
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
        document.append(tell(relation.questions, slots, trade, rng))
        document.append(tell(relation.replies, slots, trade, rng))
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
            documents.append(firm_history(rng.choice(world.firms), world, rng))
        elif register < 0.60:
            documents.append(town_guide(rng.choice(world.towns), world, rng))
        elif register < 0.68:
            documents.append(workshop_notes(rng.choice(TRADES), rng))
        else:
            documents.append(schoolbook_page(rng.choice(asked), asked, rng))
    return documents
