"""Devices that `auto` takes, and the line on them.

Alone: .venv/bin/pytest tests/orchestrator/cluster/test_device_line.py
"""

import logging
from typing import Literal

import pytest

from orchestrator.cluster import capacity
from orchestrator.cluster import device_line as module
from orchestrator.cluster.device_line import device_line, take_gpus, tell_device


@pytest.mark.parametrize(
    ("num_gpus", "num_there", "types", "line"),
    [
        (2.0, 8.0, ["H200"], "training on 2 GPUs (H200)"),
        (1.0, 2.0, ["A100", "H200"], "training on 1 GPU (A100 or H200)"),
        (0.25, 1.0, [], "training on 0.25 of a GPU"),
        (0.0, 0.0, [], "training on the CPU: the cluster has no GPU"),
        (0.0, 2.0, ["H200"], "training on the CPU: the cluster has 2 GPUs, which are too few"),
    ],
)
def test_the_line_names_devices_or_why_there_are_none(
    num_gpus: float, num_there: float, types: list[str], line: str
) -> None:
    assert device_line("training", num_gpus, num_there, types) == line


def test_what_auto_took_is_told_and_what_a_person_chose_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "cluster_resources", lambda: {"CPU": 8.0, "GPU": 1.0})
    monkeypatch.setattr(module, "gpu_types", lambda: ["H200"])
    caplog.set_level(logging.INFO)
    tell_device("scoring", 1.0, 1.0)
    tell_device("scoring", 0.0, "cpu")
    assert not caplog.messages
    tell_device("scoring", 1.0, "auto")
    assert caplog.messages == ["scoring on 1 GPU (H200)"]


@pytest.mark.parametrize(
    ("asked", "num_there", "refusal", "taken", "told"),
    [
        ("auto", 1.0, None, 1.0, [("INFO", "scoring on 1 GPU (H200)")]),
        ("auto", 1.0, "the driver is too old", 0.0, [("WARNING", "scoring on the CPU: the driver is too old")]),
        ("auto", 0.0, "not looked at", 0.0, [("INFO", "scoring on the CPU: the cluster has no GPU")]),
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
    for place in (module, capacity):
        monkeypatch.setattr(place, "cluster_resources", lambda: {"CPU": 8.0, "GPU": num_there})
    monkeypatch.setattr(module, "gpu_types", lambda: ["H200"])
    monkeypatch.setattr(module, "find_refusal", lambda labels: refusal)
    caplog.set_level(logging.INFO)
    assert take_gpus("scoring", asked) == taken
    assert [(record.levelname, record.message) for record in caplog.records] == told
