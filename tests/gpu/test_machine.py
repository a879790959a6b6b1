"""Facts of a machine with a card, which a stand-in has here. Run alone: pytest tests/gpu/test_machine.py"""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks.gpu import ceilings, machine
from benchmarks.gpu.setting import Setting

CARD = Setting(torch.device("cuda"))
PROPERTIES = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, multi_processor_count=132)


@pytest.fixture(autouse=True)
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """An H200 that answers without being there."""
    answers = {"--query-compute-apps=pid,used_memory": ("4242, 512 MiB",)}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: PROPERTIES)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (PROPERTIES.major, PROPERTIES.minor))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: PROPERTIES.name)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100 << 30, 139 << 30))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    monkeypatch.setattr(machine, "ask", lambda *command: "; ".join(answers.get(command[1], ("580.1",))))


def test_a_card_is_described_with_who_else_is_on_it() -> None:
    facts = machine.facts(CARD)
    assert facts["card"] == "NVIDIA H200"
    assert facts["capability"] == "9.0, 132 multiprocessors"
    assert facts["memory"] == "100.0 GiB free of 139.0"
    assert facts["driver"] == "580.1"
    assert facts["other processes on the card"] == "4242, 512 MiB"
    assert facts["data sheet"] == "989 TFLOP/s"


@pytest.mark.parametrize(
    ("capability", "in_bf16"),
    [((9, 0), "varlen"), ((7, 5), "fused; varlen: needs compute capability 8.0 or newer; this card has 7.5")],
)
def test_the_attention_backends_are_those_of_the_card(
    capability: tuple[int, int], in_bf16: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    facts = machine.facts(CARD)
    assert facts["attention, bf16"] == in_bf16
    if capability == (9, 0):
        assert facts["attention, bf16 with attention dropout"] == "fused; varlen: has no attention dropout"
        assert facts["attention, fp32"] == "fused; varlen: computes in 16 bits only"


def test_the_terminal_is_told_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    machine.tell(machine.facts(CARD))
    told = capsys.readouterr().out.splitlines()
    for line in ("card: NVIDIA H200", "driver: 580.1", f"torch: {torch.__version__}", "bf16: yes"):
        assert line in told
    assert "capability: 9.0, 132 multiprocessors" in told
    assert "attention, bf16: varlen" in told


def test_a_machine_without_a_card_has_its_attention_too() -> None:
    facts = machine.facts(Setting(torch.device("cpu"), is_small=True))
    assert facts["card"] == "none: the small form on the CPU"
    assert facts["attention, bf16"] == "grouped; varlen: runs on CUDA only"


def test_a_digest_changes_with_the_code_that_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "benchmarks" / "gpu" / "machine.py"))
    digests = [machine.code_digest()]
    for name in ("bert_core/a/b.py", "benchmarks/c.py", "orchestrator/pretraining/device_feed.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("pass")
        digests.append(machine.code_digest())
    (tmp_path / "orchestrator/pretraining/loop.py").write_text("pass")
    assert len(set(digests)) == 4
    assert machine.code_digest() == digests[-1]


@pytest.mark.parametrize(
    ("changed", "name"), [("none", "3f2a77c"), ("bert_core/config.py", "3f2a77c-dirty"), ("–", "3f2a77c-dirty")]
)
def test_a_commit_is_marked_where_the_code_differs_from_it(
    changed: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def ask(*command: str) -> str:
        asked.append(command)
        return changed if command[1] == "diff" else "3f2a77c"

    monkeypatch.setattr(machine, "ask", ask)
    assert machine.commit() == name
    assert ":(top,exclude)benchmarks/results" in asked[-1], "what the benchmark writes itself"


def test_bf16_that_is_emulated_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.facts(CARD)["bf16"] == "yes"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert machine.facts(CARD)["bf16"] == "no"


def test_a_copy_is_as_large_as_the_card_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ceilings.copy_size(CARD) == 2**30
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (14 << 30, 15 << 30))
    assert 2 * 4 * ceilings.copy_size(CARD) == 7 << 30, "numbers of four bytes, read and written"
    assert ceilings.copy_size(Setting(torch.device("cpu"), is_small=True)) == 2**18


def test_the_card_is_part_of_the_files_name() -> None:
    assert machine.card_name(CARD) == "h200"
    assert machine.card_name(Setting(CARD.device, is_small=True)) == "h200-small"
    assert machine.card_name(Setting(torch.device("cpu"), is_small=True)) == "small-cpu"


def test_a_card_without_a_data_sheet_has_no_rate() -> None:
    assert machine.data_sheet_flops_per_s("NVIDIA A100-SXM4-80GB") == 312e12
    assert machine.data_sheet_flops_per_s("Another Card") is None


def test_programs_that_are_missing_or_fail_give_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert machine.ask("no-such-program-anywhere") == "–"
    assert machine.ask(sys.executable, "-c", "raise SystemExit(1)") == "–"
    assert machine.ask(sys.executable, "-c", "print('a\\nb')") == "a; b"
    assert machine.ask(sys.executable, "-c", "pass") == "none"
    assert machine.installed_version("no_such_package") == "not installed"
