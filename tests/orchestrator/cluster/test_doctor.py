"""Doctor's words on this machine's card, which a stand-in has here, and on its CPU.

Alone: .venv/bin/pytest tests/orchestrator/cluster/test_doctor.py
"""

from pathlib import Path

import pytest
import torch

from orchestrator.cluster import doctor
from orchestrator.cluster.doctor import Finding, examine
from orchestrator.settings import Settings
from orchestrator.training import cards
from tests.orchestrator.training.cards_in_place import GIB, put_in_place


def finding(part: str, folder: Path) -> Finding:
    settings = Settings.from_options(str(folder / "home"), None, None, None)
    return next(found for found in examine(settings) if found.part == part)


def test_a_good_card_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_in_place(monkeypatch)
    assert finding("gpu", tmp_path) == Finding("gpu", "ok", "1 × NVIDIA H200, bf16")


def test_an_old_card_that_others_use_has_its_limits_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_in_place(monkeypatch, capability=(7, 5), free_bytes=100 * GIB, name="Tesla T4")
    found = finding("gpu", tmp_path)
    assert found.state == "note"
    assert found.found.startswith("1 × Tesla T4, no bf16: precision fp32; others hold 39.0 GiB of the 139.0 GiB")
    assert "too old for flash attention" in found.found


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
