"""Tags, flags and notes. Alone: pytest tests/orchestrator/registry/test_marks.py"""

import pytest

from orchestrator.base.errors import InputError, NotFoundError, RegistryError
from orchestrator.registry import Registry
from orchestrator.registry.records import Flag
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


def test_a_note_without_text_or_run_is_refused(registry: Registry) -> None:
    for text in ("", "  \n"):
        with pytest.raises(InputError):
            registry.annotations.note(new_run(registry), text)
    with pytest.raises(RegistryError, match="has no such run"):
        registry.annotations.note("nobody", "text")


def test_tags_come_and_go(registry: Registry) -> None:
    run_id = new_run(registry, tags=["old"])
    registry.annotations.tag(run_id, ["paper", "paper", "it's"])
    assert registry.runs("tag = 'it''s'")["id"].tolist() == [run_id]
    assert registry.annotations.untag(run_id, ["old", "never"]) == ["old"]
    assert registry.annotations.tags(run_id) == ["it's", "paper"]


@pytest.mark.parametrize("tag", ["pipeline:7f3a", "inputs:2b", " "])
def test_tags_that_say_where_a_run_belongs_are_nobodys(registry: Registry, tag: str) -> None:
    run_id = new_run(registry, tags=["inputs:2b"])
    for change in (registry.annotations.tag, registry.annotations.untag):
        with pytest.raises(InputError, match=r"is set by the laboratory alone|needs some text"):
            change(run_id, [tag])
    assert registry.annotations.tags(run_id) == ["inputs:2b"]


def test_stages_have_the_tags_of_their_pipelines(registry: Registry) -> None:
    """Those that it has when they begin, those that come later, and those of another pipeline that uses them again."""
    first, second = (new_run(registry, kind="pipeline", tags=[tag]) for tag in ("spring", "summer"))
    stage = new_run(registry, tags=[f"pipeline:{first}", "inputs:2b", "own"], kind="sweep")
    registry.trials.record(stage, [trial_result()])
    (trial,) = registry.run_table(f"parent = '{stage}'").values("id")
    registry.annotations.tag(first, ["paper", "own"])
    registry.annotations.tag(stage, [f"pipeline:{second}"], reserved=True)
    places = ["inputs:2b", *sorted([f"pipeline:{first}", f"pipeline:{second}"])]
    assert registry.annotations.tags(stage) == ["inputs:2b", "own", "paper", *places[1:], "spring", "summer"]
    assert registry.annotations.tags(str(trial)) == ["own", "paper", "spring", "summer"]
    assert set(registry.run_table("tag = 'summer' and kind != 'pipeline'").values("id")) == {stage, trial}
    registry.annotations.tag(second, ["paper"])
    counts = registry.grouped("tag", "kind = 'trial'", aggregates="count").records
    assert counts == [{"tag": tag, "count": 1} for tag in ("own", "paper", "spring", "summer")], "each once"
    registry.annotations.untag(first, ["paper", "own", "spring"])
    assert registry.annotations.tags(stage) == ["inputs:2b", "own", "paper", *places[1:], "summer"], (
        "its own, and the second's"
    )
    registry.annotations.untag(second, ["paper"])
    assert "paper" not in {*registry.annotations.tags(stage), *registry.annotations.tags(str(trial))}


def test_a_sweeps_tags_come_to_its_trials_and_go_with_it(registry: Registry) -> None:
    sweep = new_run(registry, kind="sweep")
    trial, other = registry.trials.record(sweep, [trial_result("k0"), trial_result("k1", number=1)])
    registry.annotations.tag(sweep, ["paper", "draft"])
    registry.annotations.tag(trial, ["mine"])
    assert (registry.annotations.tags(trial), registry.annotations.tags(other)) == (
        ["draft", "mine", "paper"],
        ["draft", "paper"],
    )
    assert registry.annotations.bearers(trial, "paper", "tag") == [sweep]
    assert registry.annotations.untag(trial, ["paper"]) == [], "it is the sweep's"
    assert registry.annotations.untag(sweep, ["draft", "mine"]) == ["draft"]
    assert (registry.annotations.tags(trial), registry.annotations.tags(other)) == (["mine", "paper"], ["paper"]), (
        "its own tag is the trial's"
    )


SHOWN = {"task": "sst2", "metric": "accuracy"}


def pipeline(registry: Registry, run_id: str) -> str:
    return new_run(registry, kind="pipeline", run_id=run_id)


def stage(registry: Registry, run_id: str, *pipelines: str) -> str:
    return new_run(registry, kind="sweep", run_id=run_id, tags=[f"pipeline:{one}" for one in pipelines], **SHOWN)


def trial_of(registry: Registry, sweep: str) -> str:
    (trial,) = registry.trials.record(sweep, [trial_result(metrics={"accuracy": 0.9})])
    return trial


def listed(registry: Registry) -> set[str]:
    """Runs and trials that lists show; counted the same, and no archived one among them."""
    found = set(registry.run_table(archived=False).values("id"))
    assert registry.num_runs(archived=False) == len(found)
    assert found == set(registry.run_table().values("id")) - registry.annotations.flagged("archived")
    return found


def test_a_pipeline_is_archived_with_its_stages_and_their_trials_and_brings_them_back(registry: Registry) -> None:
    whole, other = pipeline(registry, "p"), new_run(registry)
    words, tuning = stage(registry, "s1", whole), stage(registry, "s2", whole)
    trial = trial_of(registry, tuning)
    registry.annotations.set_flag(whole, "archived")
    assert listed(registry) == {other}
    assert registry.leaderboard().records == []
    assert registry.num_ranked_archived() == 1
    later = stage(registry, "s3", whole)  # a pipeline that was archived while it was at work
    assert listed(registry) == {other}
    registry.annotations.clear_flag(whole, "archived")
    assert listed(registry) == {whole, words, tuning, trial, later, other}
    assert [row["run"] for row in registry.leaderboard().records] == [trial]


def test_a_stage_that_was_archived_by_itself_stays_archived(registry: Registry) -> None:
    whole = pipeline(registry, "p")
    words, tuning = stage(registry, "s1", whole), stage(registry, "s2", whole)
    for run_id in (words, whole):
        registry.annotations.set_flag(run_id, "archived")
    registry.annotations.clear_flag(whole, "archived")
    assert listed(registry) == {whole, tuning}


def test_a_stage_that_another_pipeline_uses_is_put_away_with_the_last_of_them(registry: Registry) -> None:
    first, second = pipeline(registry, "p1"), pipeline(registry, "p2")
    shared, own = stage(registry, "s1", first, second), stage(registry, "s2", first)
    registry.annotations.set_flag(first, "archived")
    assert listed(registry) == {second, shared}
    registry.annotations.set_flag(second, "archived")
    assert listed(registry) == set()
    registry.annotations.clear_flag(first, "archived")
    assert listed(registry) == {first, own, shared}


def test_a_stage_is_pinned_with_the_first_of_its_pipelines(registry: Registry) -> None:
    first, second = pipeline(registry, "p1"), pipeline(registry, "p2")
    shared, own = stage(registry, "s1", first, second), stage(registry, "s2", second)
    trial = trial_of(registry, shared)
    registry.annotations.set_flag(first, "pinned")
    assert registry.annotations.flagged("pinned") == {first, shared, trial}
    registry.annotations.set_flag(second, "pinned")
    assert registry.annotations.flagged("pinned") == {first, second, shared, trial, own}


def test_who_bears_a_flag_is_told_the_run_itself_first(registry: Registry) -> None:
    first, second = pipeline(registry, "p1"), pipeline(registry, "p2")
    shared = stage(registry, "s1", first, second)
    trial = trial_of(registry, shared)

    def bearers(run_id: str, flag: Flag = "archived") -> list[str]:
        return registry.annotations.bearers(run_id, flag)

    assert bearers(trial) == bearers("nobody") == []
    registry.annotations.set_flag(first, "archived")
    assert bearers(shared) == [], "the second pipeline uses it"
    registry.annotations.set_flag(second, "archived")
    assert bearers(shared) == bearers(trial) == [first, second]
    registry.annotations.set_flag(shared, "archived")
    assert bearers(shared) == [shared, first, second]
    assert bearers(trial) == [shared, first, second]
    assert bearers(trial, "pinned") == []
