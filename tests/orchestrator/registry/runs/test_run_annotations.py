"""Notes, tags and flags. Alone: pytest tests/orchestrator/registry/runs/test_run_annotations.py"""

import pytest

from orchestrator.errors import InputError, NotFoundError, RegistryError
from orchestrator.registry import Registry
from tests.orchestrator.registry.samples import new_run, trial_result


def test_the_same_text_is_one_note(registry: Registry) -> None:
    run_id = new_run(registry)
    for text in ("too high\n", "too high", "rm -rf \x00 👍"):
        registry.annotations.note(run_id, text, "ann")
    notes = registry.annotations.notes(run_id)
    assert [note.text for note in notes] == ["too high", "rm -rf � 👍"]
    assert {note.author for note in notes} == {"ann"}
    assert registry.annotations.remove_note(run_id, 1).text == "too high"
    with pytest.raises(NotFoundError, match="has no note 2; it has 1"):
        registry.annotations.remove_note(run_id, 2)


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_note_is_refused(registry: Registry, text: str) -> None:
    with pytest.raises(InputError, match="needs some text"):
        registry.annotations.note(new_run(registry), text)


def test_a_note_on_a_run_that_is_not_there_is_refused(registry: Registry) -> None:
    with pytest.raises(RegistryError, match="has no such run"):
        registry.annotations.note("nobody", "text")


def test_tags_come_and_go(registry: Registry) -> None:
    run_id = new_run(registry, tags=["old"])
    registry.annotations.tag(run_id, ["paper", "paper", "it's"])
    assert registry.runs("tag = 'it''s'")["id"].tolist() == [run_id]
    assert registry.annotations.untag(run_id, ["old", "never"]) == ["old"]
    assert registry.tags(run_id) == ["it's", "paper"]


@pytest.mark.parametrize("tag", ["pipeline:7f3a", "inputs:2b", " "])
def test_tags_that_say_where_a_run_belongs_are_nobodys(registry: Registry, tag: str) -> None:
    run_id = new_run(registry, tags=["inputs:2b"])
    for change in (registry.annotations.tag, registry.annotations.untag):
        with pytest.raises(InputError, match=r"is set by the laboratory alone|needs some text"):
            change(run_id, [tag])
    assert registry.tags(run_id) == ["inputs:2b"]


def test_stages_have_the_tags_of_their_pipelines(registry: Registry) -> None:
    """Those that it has when they begin, those that come later, and those of another pipeline that uses them again."""
    first, second = (new_run(registry, kind="pipeline", tags=[tag]) for tag in ("spring", "summer"))
    stage = new_run(registry, tags=[f"pipeline:{first}", "inputs:2b"], spec={"kind": "sweep", "tags": ["own"]})
    registry.trials.record(stage, [trial_result()])
    (trial,) = registry.run_table(f"parent = '{stage}'").values("id")
    registry.annotations.tag(first, ["paper", "own"])
    registry.tag(stage, f"pipeline:{second}")
    places = ["inputs:2b", *sorted([f"pipeline:{first}", f"pipeline:{second}"])]
    assert registry.tags(stage) == ["inputs:2b", "own", "paper", *places[1:], "spring", "summer"]
    assert registry.tags(str(trial)) == ["own", "paper", "spring", "summer"]
    assert set(registry.run_table("tag = 'summer' and kind != 'pipeline'").values("id")) == {stage, trial}
    registry.annotations.tag(second, ["paper"])
    registry.annotations.untag(first, ["paper", "own", "spring"])
    assert registry.tags(stage) == ["inputs:2b", "own", "paper", *places[1:], "summer"], "its own, and the second's"
    registry.annotations.untag(second, ["paper"])
    assert "paper" not in {*registry.tags(stage), *registry.tags(str(trial))}


def test_a_sweeps_tags_come_to_its_trials_and_go_with_it(registry: Registry) -> None:
    sweep = new_run(registry, kind="sweep")
    trial, other = registry.trials.record(sweep, [trial_result("k0"), trial_result("k1", number=1)])
    registry.annotations.tag(sweep, ["paper", "draft"])
    registry.annotations.tag(trial, ["mine"])
    assert (registry.tags(trial), registry.tags(other)) == (["draft", "mine", "paper"], ["draft", "paper"])
    assert registry.annotations.untag(sweep, ["draft", "mine"]) == ["draft"]
    assert (registry.tags(trial), registry.tags(other)) == (["mine", "paper"], ["paper"]), "its own tag is the trial's"
