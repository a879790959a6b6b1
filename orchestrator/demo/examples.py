"""Sentences of the world to try a model on."""

from orchestrator.demo.world import World


def fill_mask_example(world: World) -> str:
    """A sentence whose [MASK] is a fact of the world: the country of a town, which the seed chooses."""
    town = world.towns[world.seed % len(world.towns)]
    return f"The town of {town.name} lies in [MASK], on the river {town.river}."


def fill_mask_answer(world: World) -> str:
    """What stands for [MASK] in `fill_mask_example`."""
    return world.towns[world.seed % len(world.towns)].country


def next_sentence_example(world: World) -> tuple[str, str, str]:
    """A sentence, one that follows it, and one from elsewhere in the world."""
    person = world.people[world.seed % len(world.people)]
    other = next(firm for firm in world.firms if firm.trade is not person.employer.trade and firm.group != person.group)
    return (
        f"{person.name} worked for {person.employer.name} as a {person.job} from {person.job_year}.",
        f"{person.surname} moved to {person.home.name} in {person.move_year}.",
        f"{other.name} was founded by {other.founder} in {other.founding_year}.",
    )
