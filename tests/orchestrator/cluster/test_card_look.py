"""Look at the cluster's GPUs before `auto` takes them: who says no, and what counts as a yes.

Alone: .venv/bin/pytest tests/orchestrator/cluster/test_card_look.py
"""

import json
import subprocess
import sys

import pytest
import torch

from orchestrator.cluster.card_look import common_refusal, look_at_card
from orchestrator.training import cards
from tests.orchestrator.training.cards_in_place import put_in_place
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize(
    ("refusals", "told"),
    [
        ([], None),
        ([None], None),
        (["old driver"], "old driver"),
        (["old driver", None], None),
        ([None, "old driver"], None),
        (["old driver", "no kernels", "old driver"], "old driver (and so on all 3 nodes with GPUs)"),
    ],
)
def test_gpus_are_refused_where_no_node_can_use_its_own(refusals: list[str | None], told: str | None) -> None:
    assert common_refusal(refusals) == told


def test_a_card_that_computes_is_not_refused_and_another_is_with_torchs_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")

    put_in_place(monkeypatch, capability=(7, 0), name="Tesla V100")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_80"])
    assert look_at_card() is None
    monkeypatch.setattr(cards, "launch_kernel", fail)
    refusal = look_at_card()
    assert refusal is not None
    assert refusal.startswith("the GPU cannot be used: Tesla V100 has compute capability 7.0")
    assert refusal.endswith("install a torch that is built for sm_70 there"), "work goes on: there is nothing to set"


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
