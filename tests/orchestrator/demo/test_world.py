"""The generated world: consistent, told without loose ends. Alone: pytest tests/orchestrator/demo/test_world.py"""

import re
from random import Random

import pytest

from orchestrator.demo.demo_data import corpus_text
from orchestrator.demo.tour import FILL_MASK_ANSWER, fill_mask_example, next_sentence_example
from orchestrator.demo.world import (
    HALVES,
    RELATIONS,
    Mention,
    World,
    compose,
    generate_documents,
    generate_world,
    question_subjects,
)


@pytest.fixture(scope="module")
def world() -> World:
    return generate_world(0)


def test_halves_of_the_world_share_no_names(world: World) -> None:
    def words(group: int) -> set[str]:
        towns = {word for town in world.towns if town.group == group for word in (town.name, town.country, town.river)}
        people = {word for person in world.people if person.group == group for word in person.name.split()}
        return towns | people | {firm.name.split()[0] for firm in world.firms if firm.group == group}

    assert not words(0) & words(1)


def test_facts_of_the_world_agree(world: World) -> None:
    firms = {firm.name: firm for firm in world.firms}
    people = {person.name: person for person in world.people}
    for firm in world.firms:
        assert firm.rival != firm.name
        assert firms[firm.rival].trade is firm.trade
        assert firm.founder in people
        assert firm.town.country in HALVES[firm.group]["countries"]
    for person in world.people:
        assert people[person.spouse].is_female is not person.is_female
        assert person.birth_year < person.job_year < person.move_year
        assert person.job in person.employer.trade.words["worker"]


def test_documents_are_several_clean_sentences(world: World) -> None:
    for document in generate_documents(world, 300):
        assert len(document) >= 4
        for sentence in document:
            assert re.fullmatch(r"[A-Z][^\[\]{}|]*[.?]", sentence.text), sentence.text
            assert not re.search(r"  | [.,?]|,,", sentence.text), sentence.text


def test_documents_mark_each_mention_where_it_stands(world: World) -> None:
    names = {place for town in world.towns for place in (town.name, town.country, town.river)}
    names |= {firm.name for firm in world.firms}
    names |= {name for person in world.people for name in (person.name, person.first_name, person.surname)}
    for document in generate_documents(world, 100):
        for sentence in document:
            for span in sentence.spans:
                if span.kind:
                    assert sentence.text[span.start : span.end] in names


def test_no_schoolbook_page_asks_for_a_subject_kept_for_scoring(world: World) -> None:
    kept = {subject.name for subject in question_subjects(world, for_training=False)}
    asks = [template for facts in RELATIONS.values() for fact in facts for template in fact.questions]
    openings = tuple({template.split()[0] for template in asks})
    asked = 0
    for document in generate_documents(world, 500):
        for sentence in document:
            if sentence.text.startswith(openings) and sentence.text.endswith("?"):
                asked += 1
                subjects = [span for span in sentence.spans if span.slot in ("person", "firm")]
                assert not {sentence.text[span.start : span.end] for span in subjects} & kept
    assert asked > 100


def test_composed_sentence_nests_alternatives_and_starts_with_a_capital() -> None:
    texts = {compose("{who} [ran[ far|]|slept].", {"who": Mention("she")}, Random(seed)).text for seed in range(40)}
    assert texts == {"She ran far.", "She ran.", "She slept."}


def test_fill_mask_example_hides_a_word_that_the_world_knows(world: World) -> None:
    sentence = fill_mask_example(world)
    assert sentence.count("[MASK]") == 1
    firm = next(firm for firm in world.firms if sentence.startswith(firm.name))
    assert f"by {firm.founder} in {firm.founding_year}." in sentence
    assert f" was {FILL_MASK_ANSWER} by " in corpus_text(world, 200)


def test_next_sentence_example_follows_and_does_not(world: World) -> None:
    first, following, unrelated = next_sentence_example(world)
    person = next(person for person in world.people if person.name in first)
    assert any(word in following.lower() for word in (person.surname.lower(), "he ", "she ", "his ", "her "))
    assert not any(name in unrelated for name in (person.name, person.employer.name, person.home.name))
    assert (first, following, unrelated) == next_sentence_example(generate_world(0))
