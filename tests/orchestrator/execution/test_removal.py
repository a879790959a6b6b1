"""Removal of runs: what is refused and why, and that files and record go together.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_removal.py
"""

import json
from pathlib import Path

import pytest
from sqlalchemy import update

from orchestrator.base.errors import NotFoundError, RunFailedError
from orchestrator.base.results import ModelResult, TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.cli.entry import run_command_line
from orchestrator.execution.removal import Removal, find_removals, remove_runs
from orchestrator.registry import Registry
from orchestrator.registry.parameters import trial_id
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.tables import ALL_RUNS

PIPELINE = {"kind": "pipeline", "name": "p"}
SWEEP = {"kind": "sweep", "name": "first", "task": {"id": "sst2", "metric": "accuracy"}}


def _run(recorder: Recorder, settings: Settings, run_id: str, spec: dict[str, object] = SWEEP) -> Path:
    folder = Path(settings.storage) / "runs" / run_id
    recorder.start(spec, "f" * 64, metric="accuracy", storage_path=str(folder), run_id=run_id)
    folder.mkdir(parents=True)
    (folder / "log.txt").write_bytes(b"7 bytes")
    return folder


def _trial(recorder: Recorder, run_id: str, score: float) -> None:
    values, metrics = {"learning_rate": 1e-4}, {"accuracy": score}
    recorder.registry.trials.record(run_id, [TrialResult("a", 0, values, RunState.COMPLETED, seed=0, metrics=metrics)])


def _two_scored(recorder: Recorder, settings: Settings, *run_ids: str) -> None:
    """Two completed runs of a group, the better one first."""
    for run_id, score in zip(run_ids, (0.9, 0.8), strict=True):
        _run(recorder, settings, run_id)
        _trial(recorder, run_id, score)
        recorder.complete(run_id, RunOutcome())


def _refusal(settings: Settings, run_id: str) -> str:
    (removal,) = find_removals([run_id], settings)
    return removal.refusal


def test_a_failed_run_goes_with_its_files_and_its_record(settings: Settings, recorder: Recorder) -> None:
    folder = _run(recorder, settings, "failed")
    recorder.fail("failed", RunFailedError("no luck"))
    (removal,) = find_removals(["fail"], settings)
    assert (removal.refusal, removal.num_bytes) == ("", 7)
    assert [gone.run.id for gone in remove_runs([removal], settings, at_once=True)] == ["failed"]
    assert not folder.exists()
    with Registry(settings.registry) as registry, pytest.raises(NotFoundError):
        registry.run("failed")


def test_a_run_at_work_stays(settings: Settings, recorder: Recorder) -> None:
    _run(recorder, settings, "working")
    assert "orchestrator stop working" in _refusal(settings, "working")


def test_a_run_that_starts_again_in_the_meantime_stays(settings: Settings, recorder: Recorder) -> None:
    folder = _run(recorder, settings, "again")
    recorder.fail("again", RunFailedError("no luck"))
    removals = find_removals(["again"], settings)
    with Registry(settings.registry) as registry:
        registry.lifecycle.start_attempt("again", host="h", pid=1)
    assert list(remove_runs(removals, settings)) == []
    assert folder.exists()


def test_a_run_whose_model_is_registered_stays(settings: Settings, recorder: Recorder) -> None:
    folder = _run(recorder, settings, "registered")
    recorder.record_model("registered", ModelResult(str(folder / "model"), "d" * 64, 1, "classification"))
    recorder.complete("registered", RunOutcome())
    assert "first@1" in _refusal(settings, "registered")


def test_the_best_of_a_group_stays_and_another_goes(settings: Settings, recorder: Recorder) -> None:
    _two_scored(recorder, settings, "best", "worse")
    assert "is the best of its group" in _refusal(settings, "best")
    assert _refusal(settings, "worse") == ""


def test_the_best_of_what_is_not_archived_stays(settings: Settings, recorder: Recorder) -> None:
    _two_scored(recorder, settings, "hidden", "shown")
    recorder.registry.annotations.set_flag("hidden", "archived")
    assert "is the best of its group" in _refusal(settings, "shown")


def test_the_best_of_each_code_stays(settings: Settings, recorder: Recorder) -> None:
    _two_scored(recorder, settings, "first", "other")
    with recorder.registry._database.connection(writing=True) as connection:
        connection.execute(update(ALL_RUNS).where(ALL_RUNS.c.parent_id == "other").values(code_version="other"))
    assert "is the best of its group" in _refusal(settings, "first")
    assert "is the best of its group" in _refusal(settings, "other")


def test_the_start_of_another_run_stays(settings: Settings, recorder: Recorder) -> None:
    _two_scored(recorder, settings, "best", "start")
    _run(recorder, settings, "next", {"kind": "pretrain", "name": "n", "init_from": trial_id("start", "a")})
    assert "next (n)" in _refusal(settings, "start")


@pytest.mark.parametrize(
    "named",
    [
        {"init_from": "FOLDER/model/"},
        {"init_from": "FOLDER/snapshots/step-10"},
        {"model": "FOLDER/trials/k1/model"},
        {"tokenizer": "FOLDER"},
        {"space": {"init_from": ["random", "FOLDER/model"]}},
    ],
)
@pytest.mark.heavy
def test_a_run_whose_files_another_one_names_stays(
    named: dict[str, object], settings: Settings, recorder: Recorder
) -> None:
    folder = _run(recorder, settings, "start")
    recorder.complete("start", RunOutcome())
    assert _refusal(settings, "start") == ""
    spec = json.loads(json.dumps({"kind": "sweep", "name": "n", **named}).replace("FOLDER", str(folder)))
    _run(recorder, settings, "next", spec)
    assert "next (n)" in _refusal(settings, "start")


def test_a_path_that_began_in_another_folder_is_known_by_the_run_in_it(settings: Settings, recorder: Recorder) -> None:
    _run(recorder, settings, "a" * 12)
    recorder.complete("a" * 12, RunOutcome())
    start = f"there/storage/runs/{'a' * 12}/model"
    _run(recorder, settings, "next", {"kind": "pretrain", "name": "n", "init_from": start})
    assert "next (n)" in _refusal(settings, "a" * 12)


def test_a_stage_of_a_pipeline_that_may_go_on_stays(settings: Settings, recorder: Recorder) -> None:
    _run(recorder, settings, "whole", PIPELINE)
    _stage(recorder, settings, "stage", "whole")
    for state in ("RUNNING", "FAILED"):
        assert f"whole, which is {state}" in _refusal(settings, "stage")
        recorder.fail("whole", RunFailedError("no luck"))
    gone = remove_runs(find_removals(["whole"], settings), settings)
    assert [removal.run.id for removal in gone] == ["stage", "whole"], "its pipeline takes it with it"


def _stage(recorder: Recorder, settings: Settings, run_id: str, *pipelines: str, **spec: object) -> Path:
    """Folder of a completed stage of pipelines."""
    tags = [f"pipeline:{pipeline}" for pipeline in pipelines]
    folder = _run(recorder, settings, run_id, {"kind": "pretrain", "name": f"p/{run_id}", "tags": tags, **spec})
    recorder.complete(run_id, RunOutcome())
    return folder


def test_a_pipeline_goes_with_its_stages_though_they_start_from_one_another(
    settings: Settings, recorder: Recorder
) -> None:
    _run(recorder, settings, "whole", PIPELINE)
    first = _stage(recorder, settings, "first", "whole")
    _stage(recorder, settings, "second", "whole", init_from=f"{first}/model")
    recorder.complete("whole", RunOutcome())
    removals = find_removals(["whole"], settings)
    assert [(one.run.id, one.is_stage, one.refusal, one.needed) for one in removals] == [
        ("second", True, "", ""),
        ("first", True, "", ""),
        ("whole", False, "", ""),
    ]
    assert len(list(remove_runs(removals, settings))) == 3
    assert recorder.registry.num_runs() == 0
    assert [one.run_id for one in recorder.registry.trash.stages_of("whole")] == ["first", "second"]


def test_a_stage_that_others_need_stays_when_its_pipeline_goes_and_so_does_what_it_rests_on(
    settings: Settings, recorder: Recorder
) -> None:
    for pipeline in ("whole", "other"):
        _run(recorder, settings, pipeline, PIPELINE)
    base = _stage(recorder, settings, "base", "whole")
    start = _stage(recorder, settings, "start", "whole", init_from=f"{base}/model")
    _stage(recorder, settings, "shared", "whole", "other")
    _stage(recorder, settings, "lonely", "whole")
    for pipeline in ("whole", "other"):
        recorder.complete(pipeline, RunOutcome())
    _run(recorder, settings, "outside", {"kind": "pretrain", "name": "n", "init_from": f"{start}/model"})
    removals = find_removals(["whole"], settings)
    named = "other runs started from its model, or read its files: "
    assert {one.run.id: one.needed for one in removals} == {
        "lonely": "",
        "shared": "pipeline other uses it too",
        "start": f"{named}outside (n)",
        "base": f"{named}start (p/start)",
        "whole": "",
    }
    assert {one.run.id for one in remove_runs(removals, settings)} == {"lonely", "whole"}
    both = find_removals(["other"], settings)
    assert [one.run.id for one in both if not one.needed] == ["shared", "other"], "a pipeline that is gone uses nothing"


def test_a_stage_whose_model_is_registered_holds_its_pipeline_until_forced(
    settings: Settings, recorder: Recorder
) -> None:
    _run(recorder, settings, "whole", PIPELINE)
    folder = _run(recorder, settings, "tuned", {"kind": "sweep", "name": "p/tuned", "tags": ["pipeline:whole"]})
    recorder.record_model("tuned", ModelResult(str(folder / "model"), "d" * 64, 1, "classification"))
    for run_id in ("tuned", "whole"):
        recorder.complete(run_id, RunOutcome())
    held, _ = find_removals(["whole"], settings)
    assert held.refusal.startswith("its model is registered: p/tuned@1; --force")
    assert len(_removed("whole", settings)) == 2


def test_a_stage_of_a_pinned_pipeline_stays(settings: Settings, recorder: Recorder) -> None:
    _run(recorder, settings, "whole", PIPELINE)
    _stage(recorder, settings, "stage", "whole")
    recorder.complete("whole", RunOutcome())
    assert _refusal(settings, "stage") == ""
    recorder.registry.annotations.set_flag("whole", "pinned")
    assert "edit whole --unpin" in _refusal(settings, "stage")


@pytest.mark.heavy
def test_a_pipeline_stays_with_a_stage_that_is_needed_in_the_meantime(settings: Settings, recorder: Recorder) -> None:
    _run(recorder, settings, "whole", PIPELINE)
    _stage(recorder, settings, "first", "whole")
    _stage(recorder, settings, "second", "whole")
    recorder.complete("whole", RunOutcome())
    removals = find_removals(["whole"], settings)
    recorder.registry.annotations.set_flag("first", "pinned")
    assert [one.run.id for one in remove_runs(removals, settings)] == ["second"]
    recorder.registry.annotations.clear_flag("first", "pinned")
    assert [one.run.id for one in remove_runs(find_removals(["whole"], settings), settings)] == ["first", "whole"]


def test_a_run_that_is_needed_in_the_meantime_stays(settings: Settings, recorder: Recorder) -> None:
    folder = _run(recorder, settings, "start")
    recorder.complete("start", RunOutcome())
    removals = find_removals(["start"], settings)
    _run(recorder, settings, "next", {"kind": "pretrain", "name": "n", "init_from": f"{folder}/model"})
    assert list(remove_runs(removals, settings)) == []
    assert folder.exists()


def test_what_is_registered_and_best_goes_by_force_and_what_others_start_from_stays(
    settings: Settings, recorder: Recorder
) -> None:
    folder = _run(recorder, settings, "best")
    recorder.record_model("best", ModelResult(str(folder / "model"), "d" * 64, 1, "classification"))
    _trial(recorder, "best", 0.9)
    recorder.complete("best", RunOutcome())
    _run(recorder, settings, "next", {"kind": "pretrain", "name": "n", "init_from": "first@1"})
    (kept,) = find_removals(["best"], settings, force=True)
    assert "next (n)" in kept.refusal
    recorder.fail("next", RunFailedError("no luck"))
    gone = [removal for run_id in ("next", "best") for removal in _removed(run_id, settings)]
    assert [removal.run.id for removal in gone] == ["next", "best"]
    with Registry(settings.registry) as registry:
        assert registry.models.table().records == []


def _removed(run_id: str, settings: Settings) -> list[Removal]:
    return list(remove_runs(find_removals([run_id], settings, force=True), settings, at_once=True))


def test_a_folder_that_may_hold_more_than_the_run_stays(settings: Settings, recorder: Recorder) -> None:
    recorder.start(SWEEP, "f" * 64, storage_path=settings.storage, run_id="odd")
    recorder.fail("odd", RunFailedError("no luck"))
    assert _refusal(settings, "odd").endswith("by hand")


def test_a_trial_goes_with_its_sweep_alone(settings: Settings, recorder: Recorder) -> None:
    _run(recorder, settings, "sweep")
    _trial(recorder, "sweep", 0.5)
    assert "trial of sweep" in _refusal(settings, trial_id("sweep", "a"))


def test_the_command_removes_all_or_none(
    settings: Settings, recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    for run_id in ("failed", "working"):
        _run(recorder, settings, run_id)
    recorder.fail("failed", RunFailedError("no luck"))
    home = ["--home", str(settings.home)]
    assert run_command_line(["runs", "rm", "failed", "working", "--yes", *home]) == 2
    assert "run working (first) stays: it is RUNNING" in capsys.readouterr().err
    assert run_command_line(["runs", "rm", "failed", *home]) == 2
    assert "1 run, 7 bytes would be removed, and nobody can be asked here; give --yes" in capsys.readouterr().err
    assert run_command_line(["runs", "rm", "failed", "--yes", "--now", *home]) == 0
    assert "removed 1 run, 7 bytes" in capsys.readouterr().err
