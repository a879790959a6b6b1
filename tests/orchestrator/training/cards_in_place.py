"""Card that answers torch's questions without being there."""

import pytest
import torch

from orchestrator.training import cards

GIB = 1 << 30


def put_in_place(
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int] = (9, 0),
    free_bytes: int = 139 * GIB,
    name: str = "NVIDIA H200",
) -> None:
    """Let torch tell of a card of 139 GiB, of which this process has told nobody yet."""
    monkeypatch.setattr(cards, "_PROCESSES_TOLD", set())
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: name)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (free_bytes, 139 * GIB))
    monkeypatch.setattr(cards, "launch_kernel", lambda: None)
