"""The command itself, and what it can do without. Run alone: pytest tests/gpu/test_command.py"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.gpu.__main__ import main
from benchmarks.gpu.checks import COMMAND, OPTIONS, ROOT, run_tests
from benchmarks.gpu.setting import Budget
from benchmarks.gpu.stages import STAGES

MISSING = ("ray", "sqlalchemy", "click", "pandas", "pydantic", "yaml", "fsspec", "alembic")
"""Packages that a machine with a GPU need not have."""


def run_without_packages(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command where importing any of MISSING fails."""
    for name in MISSING:
        (folder / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module named {name}', name='{name}')\n")
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_packages_that_are_blocked_cannot_be_imported(tmp_path: Path) -> None:
    blocked = run_without_packages(tmp_path, sys.executable, "-c", "import ray")
    assert "No module named ray" in blocked.stderr


def test_the_tests_are_found_by_a_python_without_the_projects_other_packages(tmp_path: Path) -> None:
    found = run_without_packages(tmp_path, *COMMAND, "--collect-only")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "test_a_single_bit_is_seen" in found.stdout


def test_parts_of_a_training_run_are_tested_by_a_python_without_the_projects_other_packages(tmp_path: Path) -> None:
    streams = "tests/gpu/test_streams_and_copies.py"
    found = run_without_packages(tmp_path, sys.executable, "-m", "pytest", streams, *OPTIONS)
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"--ignore={streams}" not in COMMAND


def test_the_stages_run_on_a_python_without_the_projects_other_packages(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu", "--small", "--output", str(tmp_path)]
    found = run_without_packages(tmp_path, *command, "--stages", "machine", "ceilings", "goals")
    assert found.returncode == 0, found.stdout + found.stderr
    assert list(tmp_path.glob("gpu_*.json"))


def test_a_machine_without_a_card_is_told_of_the_small_form(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for cuda, why in ((None, "is built without CUDA"), ("13.0", "built for CUDA 13.0, sees no card")):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        assert main([]) == 1
        assert capsys.readouterr().err == (
            f"no CUDA device here: PyTorch {torch.__version__} {why}; "
            "the small form runs the same code on the CPU: python -m benchmarks.gpu --small\n"
        )


def test_tests_that_take_too_long_count_as_failed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tests((sys.executable, "-c", "pass"), limit_s=60)
    assert not run_tests((sys.executable, "-c", "raise SystemExit(1)"), limit_s=60)
    assert not run_tests((sys.executable, "-c", "input()"), limit_s=0.01)
    assert "not done after 0 s, which counts as failed" in capsys.readouterr().out


def test_the_terminal_is_told_first_what_was_found_and_time_of_the_tests_is_not_taken_from_the_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    order: list[str] = []

    def budget(seconds: float) -> Budget:
        order.append("budget")
        return Budget(seconds)

    def failing_tests() -> bool:
        order.append("tests")
        assert f"torch: {torch.__version__}\n" in capsys.readouterr().out
        return False

    monkeypatch.setattr("benchmarks.gpu.checks.run_tests", failing_tests)
    monkeypatch.setattr("benchmarks.gpu.__main__.Budget", budget)
    assert main(["--small", "--check", "--stages", "goals", "--output", str(tmp_path)]) == 1
    assert order == ["tests", "budget"]


def test_again_measures_anew_what_a_run_of_today_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--small", "--stages", "ceilings", "--output", str(tmp_path)]
    told = []
    for arguments in ([], [], ["--again"]):
        assert main([*command, *arguments]) == 0
        told.append(next(line for line in capsys.readouterr().out.splitlines() if line.startswith("ceilings:")))
    assert told[0].startswith("ceilings: begins")
    assert told[1] == "ceilings: kept, as the same code measured it on this card today; --again measures it anew"
    assert told[2].startswith("ceilings: begins")


@pytest.mark.training
@pytest.mark.filterwarnings("default")  # transformers' and the compiler's own
def test_the_small_form_goes_through_every_stage(tmp_path: Path) -> None:
    assert main(["--small", "--minutes", "60", "--output", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("gpu_*.json")
    stages = json.loads(path.read_text(encoding="utf-8"))["stages"]
    assert list(stages) == [stage.name for stage in STAGES]
    assert all(stage["ended"] == "done" and stage["rows"] for stage in stages.values())
    sides = {row["side"] for row in stages["step time"]["rows"] if "ms" in row}
    assert len(sides) == 5 + 2 * torch.cuda.is_available()  # graphs, with and without compiled layers
    kinds = {row["kind"] for row in stages["time shares"]["rows"]}
    assert {"products", "attention", "optimizer", "cross entropy"} <= kinds
    report = path.with_suffix(".md").read_text(encoding="utf-8")
    assert "measured / predicted" in report
