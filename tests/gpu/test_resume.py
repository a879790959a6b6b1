"""Bitwise resume on a device. Run alone: pytest tests/gpu/test_resume.py"""

from pathlib import Path

import pytest
import torch

from benchmarks.gpu import resume
from benchmarks.gpu.own_step import build_learner, own_loss, packed_inputs
from benchmarks.gpu.results import Report
from benchmarks.gpu.texts import first_batches, generated_text
from tests.gpu.devices import ON_EACH_DEVICE, rows_of, small_setting


@ON_EACH_DEVICE
def test_a_run_that_is_saved_and_loaded_ends_at_the_same_bits(device: str, tmp_path: Path) -> None:
    rows = rows_of(resume.measure, device, Report(tmp_path / "r", ""))
    switched_on = [row for row in rows if row["deterministic switch"] == "on"]
    assert len(switched_on) == 4
    assert all(row["ok"] for row in switched_on), rows


def test_a_single_bit_is_seen() -> None:
    setting = small_setting("cpu")
    text = generated_text(20, 50)
    inputs = packed_inputs(first_batches(text, 1, 4, 16, seed=1)[0], setting.device)
    learners = [build_learner(setting.build_config("small", vocab_size=55), setting.device) for _ in range(2)]
    for learner in learners:
        torch.manual_seed(0)
        learner.step(own_loss(learner, inputs))
    assert resume.is_equal(*learners)
    moment = learners[0].optimizer.state[next(iter(learners[0].model.parameters()))]["exp_avg"]
    moment.view(torch.int32).view(-1)[100] += 1
    assert not resume.is_equal(*learners)


def test_operations_without_a_deterministic_form_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import warnings

    with resume.deterministic_algorithms(True) as names:
        assert torch.are_deterministic_algorithms_enabled()
        warnings.warn("put_ does not have a deterministic implementation, but ...", stacklevel=1)
    assert names == ["put_"]
    assert not torch.are_deterministic_algorithms_enabled()
