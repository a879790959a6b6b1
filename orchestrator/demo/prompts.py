"""Sentences of the world to try a model on."""

from random import Random

from orchestrator.demo.documents import firm_history, life
from orchestrator.demo.phrasing import join_sentences
from orchestrator.demo.world import World

FILL_MASK_ANSWER = "founded"


def fill_mask_example(world: World) -> str:
    """A sentence whose [MASK] follows from how the world is: firms are founded, where people are born."""
    firm = world.firms[world.seed % len(world.firms)]
    return f"{firm.name} was [MASK] by {firm.founder} in {firm.founding_year}."


def next_sentence_example(world: World) -> tuple[str, str, str]:
    """The beginning of a life, what follows it, and sentences from the history of a firm elsewhere in the world."""
    rng = Random(f"example {world.seed}")
    person = world.people[world.seed % len(world.people)]
    firm = next(firm for firm in world.firms if firm.group != person.group and firm.trade is not person.employer.trade)
    story, history = life(person, world, rng), firm_history(firm, world, rng)
    return join_sentences(story[:2]).text, join_sentences(story[2:5]).text, join_sentences(history[3:6]).text
