"""Setting by which a process multiplies fp32 matrices on its device.

Run alone: pytest tests/orchestrator/models/test_device.py
"""

from collections.abc import Iterator

import pytest
import torch

from orchestrator.models.device import choose_device
from orchestrator.specs import PretrainSpec
from orchestrator.specs.recipe import RecipeSpec
from tests.orchestrator.training.cards_in_place import put_in_place


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("allow_tf32", "precision"), [(True, "high"), (False, "highest")])
def test_a_gpu_multiplies_as_it_is_allowed_to(
    allow_tf32: bool, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place(monkeypatch)
    torch.set_float32_matmul_precision("medium")
    assert choose_device("cuda", allow_tf32) == torch.device("cuda")
    assert torch.get_float32_matmul_precision() == precision


def test_a_cpu_is_left_as_it_is() -> None:
    before = torch.get_float32_matmul_precision()
    assert choose_device("cpu") == torch.device("cpu")
    assert torch.get_float32_matmul_precision() == before


def test_specs_allow_tf32_and_keep_their_fingerprints() -> None:
    spec = PretrainSpec.model_validate({"corpus": {"files": ["a.txt"]}, "tokenizer": "t", "steps": 1})
    exact = spec.model_copy(update={"allow_tf32": False})
    assert spec.allow_tf32
    assert RecipeSpec().allow_tf32
    assert "allow_tf32" not in spec.identity_values()
    assert exact.fingerprint() != spec.fingerprint()
