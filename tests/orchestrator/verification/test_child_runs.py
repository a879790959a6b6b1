"""Child runs: killed with all that they started, resumed, tried again where Ray does not start.

A small program stands for the command line. Run alone: pytest tests/orchestrator/verification/test_child_runs.py
"""

import json
import os
import sys
from pathlib import Path

import pytest

from orchestrator.errors import RunFailedError
from orchestrator.specs import Spec
from orchestrator.specs.loading import parse_spec
from orchestrator.verification import child_runs
from orchestrator.verification.child_runs import ChildRuns
from tests.orchestrator.small_specs import PRETRAIN
from tests.waiting import PATIENCE_S, wait_until

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
    monkeypatch.setattr(child_runs, "_COMMAND_LINE", (sys.executable, "-c", program))


def calls(home: Path) -> list[str]:
    return [json.loads(line)[0][0] for line in (home / "calls").read_text().splitlines()]


def has_ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.skipif(not Path("/proc").exists(), reason="processes are listed in /proc")
def test_a_killed_run_is_killed_with_all_that_it_started_and_resumed(
    runs: ChildRuns, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, "wait", 0)
    told: list[str] = []

    def is_time(trace: Path, run_id: str) -> bool:
        told.append(run_id)
        return (runs.home / "below").exists()

    run = runs.run_killed("killed", spec, is_time, hold_after=5, overrides=["execution.num_workers=2"])
    assert (run.run_id, set(told)) == ("id-1", {"id-1"})
    below = int((runs.home / "below").read_text())
    wait_until(lambda: has_ended(below), "the process below the killed one is still there")
    assert [json.loads(line)[0] for line in (runs.home / "calls").read_text().splitlines()] == [
        ["run", str(runs.home / "specs" / "killed.yaml")],
        ["resume", "id-1", "execution.num_workers=2"],
    ]


def test_a_ray_that_does_not_start_is_tried_again(runs: ChildRuns, spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, 5, 5, 0)
    assert runs.run("straight", spec).run_id == "id-1"
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
        runs.run_killed("killed", spec, lambda trace, run_id: False)


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
