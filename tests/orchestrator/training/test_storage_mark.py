"""A worker checks that it sees its driver's storage. Alone: pytest tests/orchestrator/training/test_storage_mark.py"""

import socket
from pathlib import Path

import pytest

from orchestrator.errors import ClusterError
from orchestrator.training.storage_mark import marked_storage, refuse_without_mark


def test_a_driver_leaves_a_mark_for_the_length_of_its_work(tmp_path: Path) -> None:
    with marked_storage(str(tmp_path / "run"), 3) as mark:
        refuse_without_mark(mark)
    assert list((tmp_path / "run").iterdir()) == []


def test_a_host_without_the_storage_is_named_with_the_folder(tmp_path: Path) -> None:
    with marked_storage(str(tmp_path / "run"), 3) as mark:
        elsewhere = mark.replace(str(tmp_path), str(tmp_path / "not-mounted"))
    with pytest.raises(ClusterError) as refusal:
        refuse_without_mark(elsewhere)
    message = str(refusal.value)
    assert message.startswith(f"host {socket.gethostname()} does not see {tmp_path}/not-mounted/run, which the driver ")
    assert "mount the shared storage there" in message
