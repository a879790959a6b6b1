"""Garbage: what is found and why, what is kept, and that deleting is safe to interrupt and to repeat.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_garbage.py
"""

import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from bert_core.checkpoints.manifest import atomic_folder
from orchestrator.base.errors import RunFailedError
from orchestrator.base.results import DatasetResult, MetricEvent, ModelResult, TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.cli.entry import run_command_line
from orchestrator.execution import garbage
from orchestrator.execution.garbage import delete_garbage, find_garbage
from orchestrator.registry.parameters import trial_id
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.tables import ALL_RUNS, PIPELINE
from orchestrator.storage.attempts import marked_storage

DAY_S = 86_400.0
SWEEP = {"kind": "sweep", "name": "first", "task": {"id": "sst2", "metric": "accuracy"}}


def write(path: Path, *, days_old: float = 0.0) -> Path:
    """A file of seven bytes that was last used so many days ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"7 bytes")
    then = time.time() - days_old * DAY_S
    os.utime(path, (then, then))
    return path


def start(recorder: Recorder, settings: Settings, run_id: str, spec: dict[str, object] = SWEEP) -> Path:
    """A run's folder with all that a driver may leave in it."""
    folder = Path(settings.storage) / "runs" / run_id
    recorder.start(spec, "f" * 64, metric="accuracy", storage_path=str(folder), run_id=run_id)
    for name in ("ray/1/x", "checkpoints/step-1/w", ".model.1a2b.tmp/w", "model/w", "log.txt"):
        write(folder / name)
    write(folder / "checkpoints.json")
    return folder


def record_trials(recorder: Recorder, run_id: str, folder: Path, **scores: float) -> None:
    """Trials of these scores by their keys, with their weights."""
    for seed, (key, score) in enumerate(scores.items()):
        values = {"learning_rate": 1e-4}
        trial = TrialResult(key, seed, values, RunState.COMPLETED, seed=seed, metrics={"accuracy": score})
        recorder.registry.trials.record(run_id, [trial])
        write(folder / "trials" / key / "model" / "w")


def found(settings: Settings, days: float = 30) -> set[tuple[str, str]]:
    """What is found, by kind and path below the home's parent."""
    root = str(settings.home.parent)
    return {(item.what, item.path.removeprefix(root + "/")) for item in find_garbage(settings, days * DAY_S)}


def test_an_ended_run_keeps_its_result_and_what_it_goes_on_from(settings: Settings, recorder: Recorder) -> None:
    for run_id in ("done", "failed", "working"):
        start(recorder, settings, run_id)
    recorder.complete("done", RunOutcome())
    recorder.fail("failed", RunFailedError("no luck"))
    runs = "home/storage/runs"
    assert found(settings) == {
        ("scratch", f"{runs}/done/ray"),
        ("checkpoints", f"{runs}/done/checkpoints.json"),
        ("checkpoints", f"{runs}/done/checkpoints"),
        ("half-written", f"{runs}/done/.model.1a2b.tmp"),
        ("scratch", f"{runs}/failed/ray"),
        ("half-written", f"{runs}/failed/.model.1a2b.tmp"),
    }


@pytest.mark.parametrize("kind", ["pretrain", "distill", "pipeline"])
@pytest.mark.parametrize(("init_step", "is_kept"), [(9, True), (None, False)])
def test_checkpoints_are_kept_for_a_run_that_goes_on_from_them(
    settings: Settings, recorder: Recorder, init_step: int | None, is_kept: bool, kind: str
) -> None:
    stable = start(recorder, settings, "stable")
    recorder.complete("stable", RunOutcome())
    start_of = {"init_from": str(stable / "model"), "init_step": init_step}
    parts = {"pretrain": start_of, "distill": {"pretraining": start_of}, "pipeline": {"stages": {"br": start_of}}}
    branch = {"kind": kind, "name": "branch", **parts[kind]}
    start(recorder, settings, "branch", branch)
    kept = ("checkpoints", "home/storage/runs/stable/checkpoints") not in found(settings)
    recorder.fail("branch", RunFailedError("no luck"))
    assert kept is is_kept is (("checkpoints", "home/storage/runs/stable/checkpoints") not in found(settings))
    recorder.resume("branch")
    recorder.complete("branch", RunOutcome())
    assert ("checkpoints", "home/storage/runs/stable/checkpoints") in found(settings)


def test_checkpoints_of_a_stage_are_kept_until_its_pipeline_has_completed(
    settings: Settings, recorder: Recorder
) -> None:
    recorder.start({"kind": "pipeline", "name": "all"}, "f" * 64, run_id="pipe")
    start(recorder, settings, "stage")
    recorder.registry.annotations.tag("stage", [f"{PIPELINE}pipe"], reserved=True)
    recorder.complete("stage", RunOutcome())
    recorder.fail("pipe", RunFailedError("no luck"))
    assert ("checkpoints", "home/storage/runs/stage/checkpoints") not in found(settings)
    recorder.resume("pipe")
    recorder.complete("pipe", RunOutcome())
    assert ("checkpoints", "home/storage/runs/stage/checkpoints") in found(settings)


def test_weights_are_kept_that_are_registered_best_of_their_group_or_a_start(
    settings: Settings, recorder: Recorder
) -> None:
    folder = start(recorder, settings, "sweep")
    record_trials(recorder, "sweep", folder, best=0.9, worse=0.8, registered=0.7, start=0.6)
    registered = ModelResult(str(folder / "trials/registered/model"), "d" * 64, 1, "classification")
    recorder.record_model("sweep", registered)
    recorder.complete("sweep", RunOutcome())
    start(recorder, settings, "next", {"kind": "pretrain", "name": "n", "init_from": trial_id("sweep", "start")})
    recorder.complete("next", RunOutcome())
    weights = {path for what, path in found(settings) if what == "trial weights"}
    assert weights == {"home/storage/runs/sweep/trials/worse/model"}


def test_weights_are_kept_of_the_best_with_archived_runs_and_without(settings: Settings, recorder: Recorder) -> None:
    for run_id, scores in {"hidden": {"a": 0.99, "b": 0.5}, "shown": {"a": 0.8, "b": 0.7}}.items():
        record_trials(recorder, run_id, start(recorder, settings, run_id), **scores)
        recorder.complete(run_id, RunOutcome())
    recorder.registry.annotations.set_flag("hidden", "archived")
    weights = {path.removeprefix("home/storage/runs/") for what, path in found(settings) if what == "trial weights"}
    assert weights == {"hidden/trials/b/model", "shown/trials/b/model"}


def test_weights_are_kept_that_the_leaderboard_shows_for_each_code_and_score(
    settings: Settings, recorder: Recorder
) -> None:
    runs = {"a": {"k": 0.9}, "b": {"k": 0.8}, "c": {"k": float("inf"), "equal": 0.9, "tested": 0.5}}
    for run_id, scores in runs.items():
        record_trials(recorder, run_id, start(recorder, settings, run_id), **scores)
        recorder.complete(run_id, RunOutcome())
    registry = recorder.registry
    registry.metrics.record(trial_id("c", "tested"), [MetricEvent(0, "test", {"accuracy": 0.6})], final=True)
    with registry._database.connection(writing=True) as connection:
        other_code = update(ALL_RUNS).where(ALL_RUNS.c.parent_id == "b").values(code_version="other")
        connection.execute(other_code)
    shown = {run.id for group in registry.groups_of(registry.run_ids()) for run in (group.best, group.tested) if run}
    assert shown == {trial_id("c", "equal"), trial_id("b", "k"), trial_id("c", "tested")}
    weights = {path.removeprefix("home/storage/runs/") for what, path in found(settings) if what == "trial weights"}
    assert weights == {"a/trials/k/model", "c/trials/k/model"}


def test_the_best_weights_here_stay_although_a_merged_run_is_better(settings: Settings, recorder: Recorder) -> None:
    for run_id, score in (("own", 0.8), ("merged", 0.9)):
        folder = start(recorder, settings, run_id)
        record_trials(recorder, run_id, folder, k=score)
        recorder.complete(run_id, RunOutcome())
    shutil.rmtree(folder)
    assert not [path for what, path in found(settings) if what == "trial weights"]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_shared_data_goes_when_nobody_has_used_it_of_late(settings: Settings, recorder: Recorder, scheme: str) -> None:
    storage = Path(settings.storage)
    start(recorder, settings, "run")
    settings = replace(settings, storage=f"{scheme}{storage}")
    stores = {name: storage / "corpora" / name for name in ("old", "new", "named")}
    for name, days_old in (("old", 40), ("new", 20), ("named", 40)):
        write(stores[name] / "manifest.json", days_old=days_old)
    write(storage / "tasks" / "old" / "tokens.npy", days_old=40)
    recorder.registry.datasets.record("run", DatasetResult("text", "corpus", "f" * 64, str(stores["named"]), {}))
    assert found(settings) == set(), "a run is at work"
    recorder.fail("run", RunFailedError("no luck"))
    shared = {(what, path) for what, path in found(settings) if "runs" not in path}
    assert shared == {("token store", "home/storage/corpora/old"), ("tokenized task", "home/storage/tasks/old")}


def test_downloads_go_unless_a_process_works_with_them(settings: Settings, recorder: Recorder) -> None:
    cache, key = settings.home.parent / "cache", "0a" * 16
    for old in (cache / "compiled", cache / key):
        write(old / "w")
        os.utime(old, (0, 0))
    assert found(settings) == {("download", f"cache/{key}")}
    (gone,) = delete_garbage(find_garbage(settings, DAY_S), settings, DAY_S)
    assert gone.num_bytes == 7
    assert not old.exists()


@pytest.mark.heavy
def test_a_collection_that_was_interrupted_is_finished_by_the_next(
    settings: Settings, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = start(recorder, settings, "done")
    recorder.complete("done", RunOutcome())

    def interrupt(path: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(garbage, "delete", interrupt)
        for _ in range(4):
            with pytest.raises(KeyboardInterrupt):
                list(delete_garbage(find_garbage(settings, DAY_S), settings, DAY_S))
    list(delete_garbage(find_garbage(settings, DAY_S), settings, DAY_S))
    assert sorted(path.name for path in folder.iterdir()) == ["log.txt", "model"]
    assert find_garbage(settings, DAY_S) == []


def test_a_replaced_folder_that_a_killed_process_left_is_found(
    settings: Settings, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = start(recorder, settings, "failed")
    with monkeypatch.context() as killed:
        killed.setattr("shutil.rmtree", lambda path, **options: None)
        with atomic_folder(folder / "model"):
            pass
    recorder.fail("failed", RunFailedError("no luck"))
    (left,) = [item.path for item in find_garbage(settings, DAY_S) if ".old" in item.path]
    assert (Path(left) / "w").exists()
    list(delete_garbage(find_garbage(settings, DAY_S), settings, DAY_S))
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoints", "checkpoints.json", "log.txt", "model"]


def test_a_mark_that_a_killed_driver_left_is_found(settings: Settings, recorder: Recorder) -> None:
    folder = start(recorder, settings, "failed")
    recorder.fail("failed", RunFailedError("no luck"))
    with marked_storage(str(folder), 1) as mark:
        assert mark in [item.path for item in find_garbage(settings, DAY_S)]


def test_a_run_that_goes_on_meanwhile_keeps_everything(settings: Settings, recorder: Recorder) -> None:
    folder = start(recorder, settings, "failed")
    recorder.fail("failed", RunFailedError("no luck"))
    items = find_garbage(settings, DAY_S)
    recorder.resume("failed")
    assert list(delete_garbage(items, settings, 30 * DAY_S)) == []
    assert (folder / "ray").is_dir()


@pytest.mark.parametrize("start_from", ["trial", "folder"])
def test_weights_stay_that_a_run_has_begun_from_since_the_list_was_made(
    settings: Settings, recorder: Recorder, start_from: str
) -> None:
    folder = start(recorder, settings, "sweep")
    record_trials(recorder, "sweep", folder, best=0.9, worse=0.8)
    recorder.complete("sweep", RunOutcome())
    items = [item for item in find_garbage(settings, 30 * DAY_S) if item.what == "trial weights"]
    assert [item.num_bytes for item in items] == [7]
    model = trial_id("sweep", "worse") if start_from == "trial" else str(folder / "trials/worse/model")
    start(recorder, settings, "next", {"kind": "pretrain", "name": "n", "init_from": model})
    assert list(delete_garbage(items, settings, 30 * DAY_S)) == []
    assert (folder / "trials/worse/model/w").exists()


def test_a_removed_run_stays_whose_files_a_run_has_begun_from_since_the_list_was_made(
    settings: Settings, recorder: Recorder
) -> None:
    folder = start(recorder, settings, "gone")
    recorder.complete("gone", RunOutcome())
    recorder.registry.trash.put("gone", 7)
    items = [item for item in find_garbage(settings, DAY_S) if item.what == garbage.TRASH]
    start(recorder, settings, "next", {"kind": "pretrain", "name": "n", "init_from": str(folder / "model")})
    assert list(delete_garbage(items, settings, DAY_S)) == []
    assert (folder / "model" / "w").exists()
    recorder.registry.trash.restore("gone")


def test_no_run_begins_while_the_list_is_made_again(
    settings: Settings, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = start(recorder, settings, "done")
    recorder.complete("done", RunOutcome())
    items, find = find_garbage(settings, DAY_S), garbage._find
    threads: list[threading.Thread] = []

    def look(*args: object, **options: object) -> object:
        threads.append(threading.Thread(target=start, args=(recorder, settings, "next")))
        threads[0].start()
        threads[0].join(0.5)
        assert threads[0].is_alive()
        return find(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(garbage, "_find", look)
    assert len(list(delete_garbage(items, settings, DAY_S))) == len(items)
    threads[0].join()
    assert recorder.registry.run("next").state == RunState.RUNNING
    assert not (folder / "ray").exists()


def test_shared_data_stays_once_a_run_has_begun_that_may_use_it(settings: Settings, recorder: Recorder) -> None:
    store = Path(settings.storage) / "corpora" / "old"
    write(store / "manifest.json", days_old=40)
    items = find_garbage(settings, 30 * DAY_S)
    start(recorder, settings, "run")
    assert list(delete_garbage(items, settings, 30 * DAY_S)) == []
    assert (store / "manifest.json").exists()
    recorder.fail("run", RunFailedError("no luck"))
    assert list(delete_garbage(items, settings, 30 * DAY_S)) == items
    assert not store.exists()


def test_the_command_shows_bytes_and_deletes_only_when_told(
    settings: Settings, recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = start(recorder, settings, "done")
    recorder.complete("done", RunOutcome())
    assert run_command_line(["gc", "--dry-run", "-f", "csv"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == "what,num_bytes,path,why"
    assert f"scratch,7,{folder}/ray,the run is COMPLETED" in shown.out
    assert shown.err.splitlines()[-1] == "4 items, 28 bytes would be deleted"
    assert run_command_line(["gc"]) == 2
    assert "give --yes, or --dry-run" in capsys.readouterr().err
    assert (folder / "ray").is_dir()
    assert run_command_line(["gc", "--yes"]) == 0
    assert capsys.readouterr().err.endswith("\ndeleted 4 items, 28 bytes\n")
    assert run_command_line(["gc", "--older-than", "soon"]) == 2
    assert "such as 30d, 12h" in capsys.readouterr().err
    assert run_command_line(["gc", "--older-than", "99999999999d"]) == 2
    assert "36500d" in capsys.readouterr().err


def test_a_run_that_is_restored_meanwhile_keeps_its_files(settings: Settings, recorder: Recorder) -> None:
    folder = start(recorder, settings, "back")
    recorder.complete("back", RunOutcome())
    recorder.registry.trash.put("back", 7)
    items = [item for item in find_garbage(settings, DAY_S) if item.what == garbage.TRASH]
    assert [item.run_id for item in items] == ["back"]
    with pytest.MonkeyPatch.context() as patched:  # its last step, which takes it out of the trash, has not come yet
        patched.setattr("orchestrator.registry.lifecycle.RunLifecycle.remove", lambda *_: None)
        recorder.registry.trash.restore("back")
    assert list(delete_garbage(items, settings, 30 * DAY_S)) == []
    assert (folder / "log.txt").exists()
    assert not [item for item in find_garbage(settings, DAY_S) if item.what == garbage.TRASH]
