"""What is told of a card before work begins on it: none, unusable, too old, shared; and of a CPU without bf16.

Alone: .venv/bin/pytest tests/orchestrator/cluster/test_cards.py
"""

import warnings

import pytest
import torch

from orchestrator.base.errors import ClusterError, SpecError
from orchestrator.cluster import torch_devices as cards
from orchestrator.cluster.torch_devices import (
    Card,
    choose_device,
    find_card,
    has_bf16_cpu,
)
from tests.orchestrator.training.cards_in_place import GIB, put_in_place

OLD_DRIVER = (
    "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU "
    "driver by downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx"
)


def test_a_card_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(monkeypatch, free_bytes=100 * GIB)
    assert find_card() == Card("NVIDIA H200", (9, 0), 100 * GIB, 139 * GIB)


def test_commands_are_told_their_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    with pytest.raises(ClusterError, match="--device cpu"):
        choose_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto").type == "cpu"


@pytest.mark.parametrize(
    ("warned", "told"),
    [
        (None, "nvidia-smi"),
        ("Can't initialize NVML", "Can't initialize NVML"),
        (OLD_DRIVER, "found version 11040"),
    ],
)
def test_a_card_that_torch_cannot_use_is_refused_with_torchs_reason(
    warned: str | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_available() -> bool:
        if warned:
            warnings.warn(warned, stacklevel=1)
        return False

    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    with pytest.raises(ClusterError, match=told) as caught:
        choose_device("cuda")
    assert "\n" not in str(caught.value)


def test_a_card_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: object = None) -> None:
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be reported late")

    put_in_place(monkeypatch)
    monkeypatch.setattr(torch.cuda, "mem_get_info", fail)
    with pytest.raises(ClusterError, match="uncorrectable ECC"):
        find_card()


def test_a_card_that_torch_has_no_kernels_for_is_told_with_those_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nmore")

    put_in_place(monkeypatch, capability=(7, 0), name="Tesla V100-SXM2-16GB")
    monkeypatch.setattr(cards, "launch_kernel", fail)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_80", "sm_90"])
    with pytest.raises(ClusterError) as caught:
        choose_device("cuda")
    for told in ("Tesla V100-SXM2-16GB", "sm_75, sm_80, sm_90", "sm_70", "execution.device cpu"):
        assert told in str(caught.value)


def test_bf16_is_refused_on_a_card_without_units_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(monkeypatch, capability=(7, 5), name="Tesla T4")
    with pytest.raises(SpecError, match="precision bf16: Tesla T4"):
        choose_device("cuda", precision="bf16")
    put_in_place(monkeypatch, capability=(8, 0), name="NVIDIA A100")
    assert choose_device("cuda", precision="bf16").type == "cuda"


def test_an_old_cards_limits_are_told_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(monkeypatch, capability=(8, 0), name="NVIDIA A100")
    told: list[str] = []
    choose_device("cuda", warn=told.append)
    assert told == []
    put_in_place(monkeypatch, capability=(7, 0), name="Tesla V100")
    for _ in range(2):
        choose_device("cuda", warn=told.append)
    assert [note.partition(")")[0] for note in told] == ["Tesla V100 (compute capability 7.0"]


@pytest.mark.parametrize(
    ("machine", "avx512", "amx", "found"),
    [("x86_64", False, False, False), ("x86_64", True, False, True), ("AMD64", False, True, True)],
)
def test_a_cpu_has_bf16_by_its_units(
    machine: str, avx512: bool, amx: bool, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards.platform, "machine", lambda: machine)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert has_bf16_cpu() is found
