"""Bitwise resume on a device. Run alone: pytest tests/gpu/test_resume.py"""

from pathlib import Path

import pytest
import torch

from benchmarks.gpu import resume
from benchmarks.gpu.results import Report
from benchmarks.gpu.texts import first_batches, generated_text
from tests.gpu.devices import ON_EACH_DEVICE, rows_of, small_setting


@ON_EACH_DEVICE
@pytest.mark.filterwarnings("default")  # the compiler's own
@pytest.mark.heavy
def test_a_run_that_is_saved_and_loaded_ends_at_the_same_bits(device: str, tmp_path: Path) -> None:
    rows = rows_of(resume.measure, device, Report(tmp_path / "r", ""))
    switched_on = [row for row in rows if row["deterministic switch"] == "on"]
    assert {row["layers"] for row in switched_on} == {resume.AS_WRITTEN, resume.COMPILED}
    for row in switched_on:
        assert row["ok"], row


def test_bits_do_not_depend_on_what_new_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch may fill new memory with NaN, which would spread from any operation that reads it: none does."""
    setting, text = small_setting("cpu"), generated_text(20, 50)
    config = setting.build_config("small", vocab_size=text.vocab_size)
    batches, form = first_batches(text, 2, 4, 16, seed=1), resume.FORMS[0]
    learners = []
    for is_filled in (False, True):
        with resume.deterministic_algorithms("on"):
            assert not torch.utils.deterministic.fill_uninitialized_memory
            monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", is_filled)
            learners.append(resume.build(setting, config, form))
            resume.train(learners[-1], batches, form)
    assert resume.is_equal(*learners)
    assert torch.utils.deterministic.fill_uninitialized_memory, "as it was"
