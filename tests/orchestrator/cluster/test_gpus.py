"""Devices that work takes, a look at them before, and doctor's words on those of this machine.

Alone: pytest tests/orchestrator/cluster/test_gpus.py
"""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
import torch

from orchestrator.base.settings import Settings
from orchestrator.cluster import gpus as module
from orchestrator.cluster import torch_devices as cards
from orchestrator.cluster.capacity import ACCELERATOR, Node
from orchestrator.cluster.gpus import (
    Look,
    find_gpu_problem,
    have_bf16,
    look_at_card,
    take_gpus,
)
from orchestrator.execution import doctor
from orchestrator.execution.doctor import Finding, examine
from tests.orchestrator.training.cards_in_place import GIB, put_in_place
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize(
    ("asked", "num_there", "refusal", "taken", "told"),
    [
        ("auto", 8.0, None, 1.0, [("INFO", "scoring on 1 × H200")]),
        ("auto", 1.0, "the driver is too old", 0.0, [("WARNING", "scoring on the CPU: the driver is too old")]),
        ("auto", 0.0, "not looked at", 0.0, [("INFO", "scoring on the CPU: the cluster has 0 GPUs")]),
        (0.5, 1.0, "not looked at", 0.5, []),
        (0.0, 1.0, "not looked at", 0.0, []),
    ],
)
def test_auto_takes_a_gpu_that_torch_can_use_and_a_person_is_told_why_not(
    asked: float | Literal["auto"],
    num_there: float,
    refusal: str | None,
    taken: float,
    told: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "cluster_resources", lambda: {"CPU": 8.0, "GPU": num_there})
    monkeypatch.setattr(module, "gpu_types", lambda: ["H200"])
    monkeypatch.setattr(module, "find_gpu_problem", lambda labels: refusal)
    caplog.set_level(logging.INFO)
    assert take_gpus("scoring", asked) == taken
    assert [(record.levelname, record.message) for record in caplog.records] == told


def test_a_card_that_computes_is_not_refused_and_another_is_with_torchs_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")

    put_in_place(monkeypatch, capability=(7, 0), name="Tesla V100")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_80"])
    assert look_at_card() == Look(has_bf16=False)
    put_in_place(monkeypatch)
    assert look_at_card() == Look(has_bf16=True)
    put_in_place(monkeypatch, capability=(7, 0), name="Tesla V100")
    monkeypatch.setattr(cards, "launch_kernel", fail)
    refusal = look_at_card().problem
    assert refusal is not None
    assert refusal.startswith("the GPU cannot be used: Tesla V100 has compute capability 7.0")
    assert refusal.endswith("install a torch that is built for sm_70 there"), "work goes on: there is nothing to set"


@pytest.mark.parametrize(
    ("looks", "refusal", "has_bf16"),
    [
        ([], None, True),
        ([Look("old driver"), Look()], None, True),
        ([Look(), Look(has_bf16=False)], None, False),
        ([Look("old driver")], "old driver", True),
    ],
)
def test_one_usable_gpu_is_enough_and_units_for_bf16_are_asked_of_all(
    looks: list[Look], refusal: str | None, has_bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_look_at_gpus", lambda labels: looks)
    monkeypatch.setattr(module, "connected_nodes", lambda: [Node({"GPU": 1.0}, {ACCELERATOR: "A100"})])
    monkeypatch.setattr(module, "startable_nodes", list)
    assert find_gpu_problem() == refusal
    assert have_bf16(on_gpus=True) is has_bf16
    monkeypatch.setattr(module, "startable_nodes", lambda: [Node({"GPU": 1.0}, {ACCELERATOR: "T4"})])
    assert not have_bf16(on_gpus=True), "a GPU that cannot be looked at is known by its type"


@pytest.mark.ray
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine whose GPUs torch cannot use")
def test_auto_takes_the_cpu_of_a_cluster_whose_gpu_torch_cannot_use() -> None:
    command = [sys.executable, "-m", "tests.orchestrator.cluster.cards_on_cluster"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    found = json.loads(next(line for line in ended.stdout.splitlines() if line.startswith("{")))
    assert found["without"] is None
    assert "a GPU is asked for, and" in found["refusal"]
    assert found["elsewhere"] is None, "a node that the work may not be on is not looked at"
    assert (found["auto"], found["asked"]) == (0.0, 1.0)
    assert found["taken"] is None, "what others compute on is not waited for"


def finding(part: str, folder: Path) -> Finding:
    settings = Settings.from_options(str(folder / "home"), None, None, None)
    return next(found for found in examine(settings) if found.part == part)


def test_a_good_card_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_in_place(monkeypatch)
    assert finding("gpu", tmp_path) == Finding("gpu", "ok", "1 × NVIDIA H200, bf16, 149.25 GB of 149.25 GB free")


def test_an_old_card_that_others_use_has_its_limits_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_in_place(monkeypatch, capability=(7, 5), free_bytes=100 * GIB, name="Tesla T4")
    found = finding("gpu", tmp_path)
    assert found.state == "note"
    assert found.found.startswith(
        "1 × Tesla T4, no bf16, 107.37 GB of 149.25 GB free; Tesla T4 (compute capability 7.5)"
    )


@pytest.mark.parametrize(("has_driver", "state"), [(True, "problem"), (False, "note")])
def test_a_machine_without_a_usable_card_trains_on_its_cpu(
    has_driver: bool, state: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    monkeypatch.setattr(doctor, "_has_driver", lambda: has_driver)
    found = finding("gpu", tmp_path)
    assert found.state == state
    assert found.found.startswith("none that torch can use: training runs on CPUs")
    assert ("is built without CUDA" in found.found) is has_driver


@pytest.mark.parametrize("has_units", [True, False])
def test_a_cpu_without_units_for_bf16_is_told(has_units: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cards, "has_bf16_cpu", lambda: has_units)
    assert ("it takes longer than fp32" in finding("torch", tmp_path).found) is not has_units
