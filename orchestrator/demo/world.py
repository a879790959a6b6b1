"""The generated world: countries, towns, people and firms, and the facts that hold between them.

Its words are in world.yaml, as are the sentences that tell of it (`documents`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
TOWNS_PER_GROUP = 12
PEOPLE_PER_GROUP = 50
FIRMS_PER_GROUP = 24
SURNAMES_PER_GROUP = 30
FIRM_NAMES_PER_GROUP = 10


@dataclass(frozen=True)
class Town:
    """A town, where it lies and what it lives on."""

    name: str
    group: int  # which half of the world; the halves share no names
    country: str
    river: str
    setting: str
    trade: Trade


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


@dataclass(frozen=True)
class Person:
    """A person and the outline of a life: born, employed, moved, married."""

    first_name: str
    surname: str
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
    def name(self) -> str:
        """First name and surname."""
        return f"{self.first_name} {self.surname}"


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
    return World(
        seed=seed,
        towns=tuple(town for towns, _, _ in halves for town in towns),
        firms=tuple(firm for _, firms, _ in halves for firm in firms),
        people=tuple(person for _, _, people in halves for person in people),
    )


def _generate_half(group: int, rng: Random) -> tuple[list[Town], list[Firm], list[Person]]:
    half = HALVES[group]
    names = [f"{start}{end}".capitalize() for start in half["name_starts"] for end in WORDS["name_ends"]]
    rng.shuffle(names)
    town_names = [names.pop() for _ in range(TOWNS_PER_GROUP)]
    firm_names = [names.pop() for _ in range(FIRM_NAMES_PER_GROUP)]
    surnames = [names.pop() for _ in range(SURNAMES_PER_GROUP)]
    surnames += town_names[:4]  # as in life, some families are called after a town
    people_names = _people_names(group, surnames, rng)
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
    firms = _generate_firms(group, towns, firm_names, [name for name, _ in people_names], rng)
    people = [
        _generate_person(group, name, is_female, towns, firms, people_names, rng) for name, is_female in people_names
    ]
    return towns, firms, people


def _people_names(group: int, surnames: list[str], rng: Random) -> list[tuple[str, bool]]:
    """Full names, no two alike, each with whether it is a woman's."""
    names: dict[str, bool] = {}
    while len(names) < PEOPLE_PER_GROUP:
        is_female = len(names) % 2 == 0
        first_name = rng.choice(HALVES[group]["female_names" if is_female else "male_names"])
        names.setdefault(f"{first_name} {rng.choice(surnames)}", is_female)
    return list(names.items())


def _generate_firms(
    group: int, towns: list[Town], firm_names: list[str], people_names: list[str], rng: Random
) -> list[Firm]:
    """Firms called after a family or by a word of their own; each name once."""
    names: set[str] = set()
    while len(names) < FIRMS_PER_GROUP:
        stem = rng.choice((rng.choice(people_names).split()[1], rng.choice(firm_names), rng.choice(firm_names)))
        names.add(f"{stem} {rng.choice(WORDS['firm_endings'])}")
    ordered = sorted(names)
    firms = []
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
    group: int,
    name: str,
    is_female: bool,
    towns: list[Town],
    firms: list[Firm],
    people_names: list[tuple[str, bool]],
    rng: Random,
) -> Person:
    first_name, surname = name.split()
    birth_year = rng.randrange(1870, 1910)
    job_year = birth_year + rng.randrange(16, 26)
    employer = rng.choice(firms)
    birthplace, home = rng.sample(towns, 2)
    return Person(
        first_name=first_name,
        surname=surname,
        group=group,
        is_female=is_female,
        birth_year=birth_year,
        birthplace=birthplace,
        employer=employer,
        job=rng.choice(employer.trade.words["worker"]),
        job_year=job_year,
        home=home,
        move_year=job_year + rng.randrange(2, 15),
        spouse=rng.choice([other for other, female in people_names if female != is_female]),
    )
