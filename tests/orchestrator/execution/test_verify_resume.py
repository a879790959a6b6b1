"""Comparison of killed and resumed runs with straight ones: what is carried out, killed, and equal.

A fake stands for the runs. Run alone: pytest tests/orchestrator/execution/test_verify_resume.py
"""

import json
import os
import sys
from pathlib import Path

import pytest

from orchestrator.base.errors import NotFoundError, RunFailedError, SpecError
from orchestrator.base.settings import Settings
from orchestrator.execution import verify_resume as verify_module
from orchestrator.execution.verify_resume import ChildRuns, verify_resume
from orchestrator.specs import DistillSpec, PretrainSpec, Spec
from orchestrator.specs.loading import parse_spec
from tests.orchestrator.execution.fake_runs import SAME, FakeRuns
from tests.orchestrator.small_specs import DISTILL, EVALUATE, PRETRAIN, SWEEP, write_inputs
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a home that is not made yet, beside the inputs of small specs in the current folder."""
    monkeypatch.chdir(tmp_path)
    return write_inputs(tmp_path)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRuns:
    return FakeRuns(monkeypatch)


def test_a_pretraining_is_killed_in_its_middle_and_shared_among_other_workers(
    fake: FakeRuns, settings: Settings, tmp_path: Path
) -> None:
    execution = {"snapshot_steps": [500, 1000], "num_workers": 2}
    spec = parse_spec({**PRETRAIN, "steps": 1000, "average_steps": [500, 1000], "execution": execution})
    found = verify_resume(spec, settings, num_steps=7)
    assert [(each.run, each.what, each.equal) for each in found] == [
        ("killed after step 7, resumed", "batches", True),
        ("killed after step 7, resumed", "weights", True),
        ("killed after step 7, resumed", "optimizer", True),
        ("1 worker", "batches", True),
        ("killed after step 7, resumed with 1 worker", "batches", True),
    ]
    assert fake.overrides == {"killed": (), "killed-workers-1": ("execution.num_workers=1",)}
    assert fake.specs["killed-workers-1"] == fake.specs["straight"]
    assert fake.hold_after == 7
    straight, alone = fake.specs["straight"], fake.specs["workers-1"]
    assert isinstance(straight, PretrainSpec)
    assert isinstance(alone, PretrainSpec)
    assert fake.specs["killed"] == straight
    assert (straight.steps, straight.execution.checkpoint_every_steps, straight.execution.num_workers) == (14, 7, 2)
    assert straight.tokenizer == str(tmp_path / "words")
    assert (alone.execution.num_workers, alone.fingerprint()) == (1, straight.fingerprint())
    assert not list((settings.home / "verify").iterdir())


def test_a_number_of_workers_that_cannot_share_the_batch_is_refused_before_any_run(
    fake: FakeRuns, settings: Settings
) -> None:
    spec = parse_spec({**PRETRAIN, "global_batch_size": 64})
    with pytest.raises(SpecError, match="--workers"):
        verify_resume(spec, settings, worker_counts=[1, 65])
    assert not fake.specs


def test_what_differs_is_said_and_its_runs_are_kept(fake: FakeRuns, settings: Settings) -> None:
    fake.outcomes = {
        "killed": SAME | {"optimizer": "d" * 64},
        "workers-3": SAME | {"weights": "e" * 64},
        "killed-workers-4": SAME | {"batches": "f" * 64},
    }
    found = verify_resume(parse_spec({**PRETRAIN, "global_batch_size": 12}), settings, worker_counts=[3, 4])
    assert [(each.run, each.what) for each in found if not each.equal] == [
        ("killed after step 5, resumed", "optimizer"),
        ("killed after step 5, resumed with 4 workers", "batches"),
    ]
    assert [each.run for each in found][-4::2] == ["3 workers", "4 workers"]
    assert list((settings.home / "verify").iterdir())


@pytest.mark.parametrize("values", [SWEEP, DISTILL], ids=["sweep", "distill"])
def test_what_trains_on_a_task_is_carried_out_whole(
    fake: FakeRuns, settings: Settings, values: dict[str, object]
) -> None:
    found = verify_resume(parse_spec(values), settings)
    assert list(fake.specs) == ["straight", "killed"]
    assert fake.hold_after is None
    assert {each.run for each in found} == {"killed, resumed"}


def test_a_distillation_on_a_corpus_is_compared_as_a_pretraining(fake: FakeRuns, settings: Settings) -> None:
    pretraining = {key: value for key, value in PRETRAIN.items() if key != "kind"}
    spec = parse_spec(
        {"kind": "distill", "teacher": "short", "pretraining": {**pretraining, "phases": [{"max_seq_length": 40}]}}
    )
    verify_resume(spec, settings, num_steps=3)
    straight = fake.specs["straight"]
    assert isinstance(straight, DistillSpec)
    assert straight.pretraining is not None
    assert (straight.pretraining.steps, fake.hold_after) == (6, 3)
    assert list(fake.specs) == ["straight", "killed", "workers-2", "killed-workers-2"]
    assert fake.overrides["killed-workers-2"] == ("pretraining.execution.num_workers=2",)


def test_a_kind_that_is_not_resumed_in_its_midst_is_refused(fake: FakeRuns, settings: Settings) -> None:
    with pytest.raises(SpecError, match="this is of"):
        verify_resume(parse_spec(EVALUATE), settings)


def test_a_spec_that_cannot_run_is_refused_before_anything_starts(fake: FakeRuns, settings: Settings) -> None:
    with pytest.raises(NotFoundError, match="tokenizer: 'elsewhere'"):
        verify_resume(parse_spec({**PRETRAIN, "tokenizer": "elsewhere"}), settings)
    assert not fake.specs


PROGRAM = """
import json, os, subprocess, sys, time
home, command = sys.argv[2], sys.argv[3]
with open(f"{home}/calls", "a") as calls:
    calls.write(json.dumps([sys.argv[3:], {k: v for k, v in os.environ.items() if k[:3] in ("RAY", "ORC")}]) + "\\n")
print("id-1", flush=True)
print("a message", file=sys.stderr)
status = STATUSES[sum(1 for line in open(f"{home}/calls")) - 1]
if status == "wait":
    below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(SECONDS)"], start_new_session=True)
    with open(f"{home}/below.tmp", "w") as file:
        file.write(str(below.pid))
    os.replace(f"{home}/below.tmp", f"{home}/below")
    time.sleep(SECONDS)
sys.exit(status)
"""


@pytest.fixture
def spec() -> Spec:
    return parse_spec(PRETRAIN)


@pytest.fixture
def runs(tmp_path: Path) -> ChildRuns:
    return ChildRuns(tmp_path)


def answer(monkeypatch: pytest.MonkeyPatch, *statuses: int | str) -> None:
    """Let the commands end with these statuses, in turn; "wait" is for one that is killed."""
    program = PROGRAM.replace("STATUSES", repr(statuses)).replace("SECONDS", str(PATIENCE_S))
    monkeypatch.setattr(verify_module, "_COMMAND_LINE", (sys.executable, "-c", program))


def calls(home: Path) -> list[str]:
    return [json.loads(line)[0][0] for line in (home / "calls").read_text().splitlines()]


def has_ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_killed_run_is_killed_with_all_that_it_started_and_resumed(
    runs: ChildRuns, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, "wait", 0)
    told: list[str] = []

    def is_time(run_id: str) -> bool:
        told.append(run_id)
        return (runs.home / "below").exists()

    run = runs.run_killed("killed", spec, is_time, hold_after=5, overrides=["execution.num_workers=2"])
    assert (run, set(told)) == ("id-1", {"id-1"})
    below = int((runs.home / "below").read_text())
    wait_until(lambda: has_ended(below), "the process below the killed one is still there")
    assert [json.loads(line)[0] for line in (runs.home / "calls").read_text().splitlines()] == [
        ["run", str(runs.home / "specs" / "killed.yaml")],
        ["resume", "id-1", "execution.num_workers=2"],
    ]


def test_a_ray_that_does_not_start_is_tried_again(runs: ChildRuns, spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, 5, 5, 0)
    assert runs.run("straight", spec) == "id-1"
    assert calls(runs.home) == ["run", "run", "run"]


@pytest.mark.parametrize(("statuses", "num_calls"), [((1,), 1), ((5, 5, 5), 3)])
def test_a_run_that_fails_is_told_with_its_last_message(
    runs: ChildRuns, spec: Spec, monkeypatch: pytest.MonkeyPatch, statuses: tuple[int, ...], num_calls: int
) -> None:
    answer(monkeypatch, *statuses)
    with pytest.raises(RunFailedError, match=r"straight\.log"):
        runs.run("straight", spec)
    assert len(calls(runs.home)) == num_calls


def test_a_run_that_ends_before_it_is_killed_proves_nothing(
    runs: ChildRuns, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, 0)
    with pytest.raises(RunFailedError, match="ended with status"):
        runs.run_killed("killed", spec, lambda run_id: False)


def test_children_do_not_see_a_persons_registry_or_cluster(
    runs: ChildRuns, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, 0)
    for name in ("ORCHESTRATOR_REGISTRY", "ORCHESTRATOR_STORAGE", "ORCHESTRATOR_HOME", "RAY_ADDRESS", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "of a person")
    monkeypatch.setenv("ORCHESTRATOR_CACHE", "shared")
    runs.run("straight", spec)
    ((_, environment),) = [json.loads(line) for line in (runs.home / "calls").read_text().splitlines()]
    assert "of a person" not in environment.values()
    assert environment["ORCHESTRATOR_CACHE"] == "shared"
    assert environment["ORCHESTRATOR_BATCH_TRACE"] == str(runs.home / "traces" / "straight")
    assert os.environ["ORCHESTRATOR_REGISTRY"] == "of a person"
