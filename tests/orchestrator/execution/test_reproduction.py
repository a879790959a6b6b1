"""Reproduction of runs: specs and commands that make them again, and what is told to be no longer the same.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_reproduction.py
"""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.errors import InputError, NotFoundError, SpecError
from orchestrator.execution.origin import save_origin
from orchestrator.execution.reproduction import kept_diff, plan_reproduction, reproduction_spec, spec_text
from orchestrator.execution.reproduction_run import Outcome, compare_outcomes, run_reproduction
from orchestrator.provenance.machine import installed_versions
from orchestrator.provenance.made_with import MadeWith
from orchestrator.provenance.source_code import read_source_code
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.tables import RunRow
from orchestrator.results import DatasetResult, FileCount, MetricEvent
from orchestrator.run_states import RunState
from orchestrator.settings import Settings
from orchestrator.specs.loading import parse_spec, spec_values
from tests.orchestrator.registry.samples import made_with, model_result, trial_result

SWEEP: dict[str, Any] = {
    "kind": "sweep",
    "name": "tuned",
    "tags": ["paper"],
    "task": {"id": "sst2", "folder": "data"},
    "recipe": {"tokenizer": "words", "epochs": 2},
    "space": {"learning_rate": [1e-4, 3e-4]},
    "scheduler": "asha",
    "seeds": [0, 1],
}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    return Settings.from_options(home=str(tmp_path / "home"))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("words\n" * 10)
    os.utime(path, (time.time() - 3600, time.time() - 3600))
    return path


def now() -> MadeWith:
    """Make of a driver that starts now."""
    return MadeWith(read_source_code(), "orchestrator run a.yaml", (), {"versions": installed_versions()})


def record(settings: Settings, spec: dict[str, Any], make: MadeWith | None, tags: tuple[str, ...] = ()) -> str:
    """A completed run."""
    parsed = parse_spec(spec)
    settings.home.mkdir(exist_ok=True)
    with Registry(settings.registry) as registry:
        recorder = Recorder(registry, made_with=make)
        values = spec_values(parsed) | {"tags": [*parsed.tags, *tags]}
        run = recorder.start(values, parsed.fingerprint(), metric="accuracy")
        if spec["kind"] == "sweep":
            results = [
                trial_result(f"k{n}", number=n, parameters={"learning_rate": rate}, seed=1, metrics={"accuracy": rate})
                for n, rate in enumerate((1e-4, 3e-4))
            ]
            recorder.record_trials(run.id, results)
        recorder.complete(run.id, RunOutcome())
    return run.id


def corpus(text: Path, **changes: Any) -> dict[str, Any]:
    return {"kind": "tokenizer", "name": "words", "corpus": {"files": [str(text)]}, "vocab_size": 200, **changes}


def test_a_run_of_the_code_of_now_needs_its_spec_alone(settings: Settings, text: Path) -> None:
    run_id = record(settings, corpus(text), now())
    plan = plan_reproduction(run_id[:6], settings, "orchestrator --home h")
    place = Path.cwd() / f"{run_id}.yaml"
    assert plan.commands == [
        f"orchestrator --home h runs reproduce {run_id} --show spec > {place}",
        f"new=$(orchestrator --home h run {place})",
        f'orchestrator --home h runs diff {run_id} "$new"',
    ]
    assert (plan.obstacles, plan.notes) == ([], []) or all("another machine" in note for note in plan.notes)


def test_the_spec_that_is_printed_makes_the_same_run(settings: Settings, text: Path) -> None:
    spec = corpus(text, tags=["paper"])
    run_id = record(settings, spec, now(), ("pipeline:x", "inputs:y"))
    printed = parse_spec(yaml.safe_load(spec_text(plan_reproduction(run_id, settings))))
    assert printed == parse_spec(spec)
    assert printed.tags == ("paper",)


def test_other_code_is_checked_out_with_its_changes_and_versions(settings: Settings, text: Path) -> None:
    environment = {"versions": installed_versions() | {"torch": "1.0.0", "python": "3.10.1"}}
    make = replace(made_with("a" * 40, "+x = 1"), environment=environment)
    run_id = record(settings, corpus(text), make)
    plan = plan_reproduction(run_id, settings)
    script = "\n".join(plan.commands)
    diff = Path.cwd() / f"{run_id}.diff"
    root = Path(__file__).resolve().parents[3]
    assert f"orchestrator runs reproduce {run_id} --show diff > {diff}\n" in script
    code = Path.cwd() / f"{run_id}-code"
    added = f"git -C {root} worktree add --detach {code} {'a' * 40} && git -C {code} apply {diff}"
    assert f"[ -d {code} ] || {{ {added}; }}\n" in script
    assert f"new=$(cd {code} && {sys.executable} -m orchestrator run {Path.cwd()}/{run_id}.yaml)\n" in script
    assert plan.commands[-1] == f"git -C {root} worktree remove --force {code}"
    assert any("may refuse a registry" in each for each in plan.notes)
    assert "python -m pip install torch==1.0.0  # under Python 3.10.1\n" in script
    assert any("commit aaaaaaaaaaaa is not in the checkout" in each for each in plan.obstacles) or any(
        "no checkout" in each for each in plan.obstacles
    )
    assert kept_diff(run_id, settings) == "+x = 1"


def test_a_spec_that_is_run_in_the_folder_of_its_code_has_absolute_paths(settings: Settings, text: Path) -> None:
    spec = corpus(text, corpus={"files": [text.name]})
    run_id = record(settings, spec, made_with("a" * 40, None))
    assert yaml.safe_load(spec_text(plan_reproduction(run_id, settings)))["corpus"]["files"] == [str(text)]
    run_id = record(settings, spec, now())
    assert yaml.safe_load(spec_text(plan_reproduction(run_id, settings)))["corpus"]["files"] == [text.name]


def test_a_path_of_a_spec_is_absolute_also_while_nothing_is_there(settings: Settings, text: Path) -> None:
    run_id = record(settings, corpus(text, corpus={"files": ["gone.txt"]}), made_with("a" * 40, None))
    printed = yaml.safe_load(spec_text(plan_reproduction(run_id, settings)))
    assert printed["corpus"]["files"] == [str(text.parent / "gone.txt")]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"diff": None, "diff_bytes": 300_000}, "its uncommitted changes were not kept: 300,000 bytes are too many"),
        ({"has_masked_secrets": True}, "held secrets, which were masked"),
        ({"commit": None, "reason": "git is not installed"}, "known by its version alone, 0.1.0: git is not installed"),
    ],
)
def test_code_that_cannot_be_put_back_is_told(
    settings: Settings, text: Path, changes: dict[str, Any], told: str
) -> None:
    make = made_with("a" * 40, "+x = 1")
    run_id = record(settings, corpus(text), replace(make, code=replace(make.code, **changes)))
    assert any(told in each for each in plan_reproduction(run_id, settings).obstacles)


def test_a_spec_that_only_its_own_code_reads_is_run_by_that_code(settings: Settings, text: Path) -> None:
    run_id = record(settings, corpus(text), made_with("a" * 40))
    with Registry(settings.registry) as registry, registry._database.session(writing=True) as session:
        run = session.get_one(RunRow, run_id)
        run.spec = {**run.spec, "old_field": 3, "tags": ["paper", "inputs:y"]}
    plan = plan_reproduction(run_id, settings)
    assert "git " in plan.commands[1]
    assert [each for each in plan.obstacles if each.startswith("its data were not looked at: only its own code")]
    printed = yaml.safe_load(spec_text(plan))
    assert (printed["old_field"], printed["vocab_size"], printed["tags"]) == (3, 200, ["paper"])
    with pytest.raises(InputError, match="does not read its spec; the commands that do so with its own code"):
        run_reproduction(plan, settings)


def test_a_spec_that_no_known_code_reads_is_an_error(settings: Settings, text: Path) -> None:
    run_id = record(settings, corpus(text), None)
    with Registry(settings.registry) as registry, registry._database.session(writing=True) as session:
        run = session.get_one(RunRow, run_id)
        run.spec = {**run.spec, "old_field": 3}
    with pytest.raises(SpecError, match="old_field is no field of this spec"):
        plan_reproduction(run_id, settings)


def test_code_that_was_never_recorded_is_told(settings: Settings, text: Path) -> None:
    plan = plan_reproduction(record(settings, corpus(text), None), settings)
    assert plan.obstacles == ["its code was not recorded: the run is older than such records"]
    with pytest.raises(NotFoundError, match="no uncommitted changes"):
        kept_diff(plan.run.id, settings)


def test_a_run_is_made_again_in_the_folder_that_it_was_started_in(
    settings: Settings, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "origin").mkdir()
    with Registry(settings.registry) as registry:
        spec = parse_spec(corpus(text))
        run = Recorder(registry, made_with=now()).start(spec_values(spec), "f", storage_path=str(tmp_path / "run"))
        monkeypatch.chdir(tmp_path / "origin")
        save_origin(str(tmp_path / "run"), spec)
        monkeypatch.chdir(tmp_path)
    assert f"cd {tmp_path}/origin" in plan_reproduction(run.id, settings).commands
    (tmp_path / "origin").rmdir()
    assert any("origin, is gone" in each for each in plan_reproduction(run.id, settings).obstacles)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda path: path.unlink(), "cannot be read: No such file or directory"),
        (lambda path: path.write_text("x"), "has changed: 60 bytes then, 1 now"),
        (lambda path: os.utime(path, (time.time() + 60, time.time() + 60)), "was written again since"),
        (lambda path: None, None),
    ],
)
def test_text_that_has_changed_is_told(settings: Settings, text: Path, change: Any, told: str | None) -> None:
    run_id = record(settings, corpus(text), now())
    with Registry(settings.registry) as registry:
        files = [FileCount(str(text), 60, 10)]
        registry.datasets.record(run_id, DatasetResult("text", "corpus", "c" * 64, "/c", {}, files))
    change(text)
    obstacles = plan_reproduction(run_id, settings).obstacles
    assert len(obstacles) == (told is not None)
    assert all(str(told) in each for each in obstacles)


def test_a_split_that_has_changed_is_told_by_its_digests(settings: Settings, tmp_path: Path) -> None:
    from orchestrator.specs.parts import task_of
    from orchestrator.tasks import load_task

    (tmp_path / "data").mkdir()
    for split in ("train", "dev", "test"):
        (tmp_path / "data" / f"{split}.tsv").write_text("sentence\tlabel\ngood\t1\nbad\t0\n")
    run_id = record(settings, SWEEP, now())
    task = load_task(task_of(parse_spec(SWEEP)))  # type: ignore[arg-type]
    with Registry(settings.registry) as registry:
        registry.trials.set_data(run_id, {split: task.fingerprint(split)[:16] for split in ("train", "validation")})
    told = [each for each in plan_reproduction(run_id, settings).obstacles if each.startswith("data")]
    assert told == []
    (tmp_path / "data" / "train.tsv").write_text("sentence\tlabel\ngood\t0\nbad\t0\n")
    (told_now,) = [each for each in plan_reproduction(run_id, settings).obstacles if each.startswith("data")]
    assert told_now.startswith("data: the train split of sst2 has changed: digest ")


def test_a_model_that_is_gone_is_told(settings: Settings, text: Path) -> None:
    run_id = record(settings, corpus(text), now())
    with Registry(settings.registry) as registry:
        registry.models.register("start", model_result(), run_id)
    spec = {"kind": "pretrain", "name": "on", "tokenizer": "start@1", "init_from": "start@1", "steps": 2}
    second = record(settings, spec | {"corpus": {"files": [str(text)]}}, now())
    obstacles = plan_reproduction(second, settings).obstacles
    assert any(each.startswith("init_from: the folder of start@1") for each in obstacles)


def test_a_trial_is_made_again_alone(settings: Settings) -> None:
    run_id = record(settings, SWEEP, now(), ("pipeline:x",))
    with Registry(settings.registry, read_only=True) as registry:
        trial = registry.trials.table(run_id).records[1]["id"]
        spec = reproduction_spec(registry, registry.run(trial))
    values = spec_values(spec)
    assert (spec.name, spec.tags, values["seeds"], values["space"]) == ("tuned-1", ("paper",), [1], {})
    assert (values["recipe"]["learning_rate"], values["recipe"]["epochs"]) == (3e-4, 2)
    assert values["scheduler"] == "none"


def test_a_pipeline_is_made_again_stage_by_stage(settings: Settings, text: Path) -> None:
    with Registry(settings.registry) as registry:
        recorder = Recorder(registry)
        pipeline = recorder.start({"kind": "pipeline", "name": "life"}, "f").id
        spec = {**corpus(text), "name": "life/words", "tags": [f"pipeline:{pipeline}"]}
        stage = recorder.start(spec, "f").id
    plan = plan_reproduction(pipeline, settings)
    assert plan.commands == [f"orchestrator runs reproduce {stage}  # life/words"]
    for use in (lambda: run_reproduction(plan, settings), lambda: spec_text(plan)):
        with pytest.raises(InputError, match="is a pipeline"):
            use()


def test_results_are_compared_but_for_times(settings: Settings, text: Path) -> None:
    with Registry(settings.registry) as registry:
        recorder = Recorder(registry)
        runs = []
        for loss, digest in ((2.0, "1" * 64), (2.0, "1" * 64), (1.5, "2" * 64)):
            run = recorder.start({"kind": "pretrain", "name": "words"}, "f")
            values = {"mlm_loss": loss, "nsp": float("nan"), "tokens_per_s": float(len(runs))}
            recorder.record_events(run.id, [MetricEvent(1, "validation", values)])
            registry.models.register(f"words{len(runs)}", model_result(digest), run.id)
            runs.append(run.id)
        same = compare_outcomes(registry, runs[0], runs[1])
        assert [(each.what, each.is_same) for each in same] == [("mlm_loss", True), ("nsp", True), ("weights", True)]
        other = {each.what: each.is_same for each in compare_outcomes(registry, runs[0], runs[2])}
        assert other == {"mlm_loss": False, "nsp": True, "weights": False}
    assert not Outcome("x", None, 1.0).is_same


def test_trials_are_compared_with_the_only_trial_of_the_new_sweep(settings: Settings) -> None:
    old, new = record(settings, SWEEP, now()), record(settings, SWEEP, now())
    with Registry(settings.registry, read_only=True) as registry:
        trial = registry.trials.table(old).records[0]["id"]
        assert {each.what: each.is_same for each in compare_outcomes(registry, trial, new)}["accuracy"]
        sweeps = {each.what: each.is_same for each in compare_outcomes(registry, old, new)}
    assert sweeps == {"trial 0: accuracy": True, "trial 1: accuracy": True}


def test_a_sweep_that_ended_without_a_trial_is_told(settings: Settings) -> None:
    old = record(settings, SWEEP, now())
    with Registry(settings.registry) as registry:
        trial = str(registry.trials.table(old).records[0]["id"])
        new = Recorder(registry).start(spec_values(parse_spec(SWEEP)), "f").id
        registry.lifecycle.finish(new, RunState.FAILED)
        with pytest.raises(InputError, match=f"run {new}, .* is FAILED without any trial"):
            compare_outcomes(registry, trial, new)


@pytest.mark.parametrize("commit", ["a", "b"])
def test_attempts_of_other_code_are_told_with_the_one_that_is_taken(settings: Settings, commit: str) -> None:
    old = record(settings, SWEEP | {"name": "again"}, made_with("a" * 40))
    with Registry(settings.registry) as registry:
        sweep = Recorder(registry, made_with=made_with("a" * 40)).start(registry.run(old).spec, "f")
        (trial,) = Recorder(registry).record_trials(sweep.id, [trial_result("k0", parameters={}, seed=1)])
        Recorder(registry, made_with=made_with(commit * 40, "+x = 2")).resume(sweep.id)
    told = "its 2 attempts ran different code; that of attempt {} is taken"
    assert told.format(2) in plan_reproduction(sweep.id, settings).notes
    assert told.format(1) in plan_reproduction(trial, settings).notes
