"""Attention backends and models against float64. Run alone: pytest tests/gpu/test_parity.py"""

import pytest

from benchmarks.gpu import parity
from bert_core.attention import BACKENDS
from bert_core.families import FAMILY_NAMES
from tests.gpu.devices import ON_EACH_DEVICE, small_setting


@ON_EACH_DEVICE
@pytest.mark.parametrize("kind", parity.KINDS)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_attention_agrees_with_its_definition(backend: object, kind: str, device: str) -> None:
    row = parity.compare_backend(small_setting(device), backend, kind)
    assert row.get("ok", True), row
    assert row


@ON_EACH_DEVICE
@pytest.mark.parametrize("head", parity.HEADS)
@pytest.mark.parametrize("family", FAMILY_NAMES)
@pytest.mark.heavy
def test_models_agree_with_themselves_in_double_precision(family: str, head: str, device: str) -> None:
    row = parity.compare_model(small_setting(device), family, head)
    assert row["ok"], row


@ON_EACH_DEVICE
def test_the_loss_of_a_vocabulary_agrees_with_its_definition(device: str) -> None:
    row = parity.compare_vocabulary_loss(small_setting(device))
    assert row["ok"], row
    assert {"fp32 value", "fp32 gradient", "bf16 value", "bf16 gradient"} <= row.keys()


@ON_EACH_DEVICE
@pytest.mark.filterwarnings("default")  # the compiler's own
@pytest.mark.heavy
def test_compiled_layers_agree_with_eager_ones(device: str) -> None:
    row = parity.compare_compiled(small_setting(device))
    assert row["ok"], row
