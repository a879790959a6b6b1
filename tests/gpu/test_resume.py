"""Bitwise resume on a device. Run alone: pytest tests/gpu/test_resume.py"""

import warnings
from pathlib import Path

import pytest
import torch

from benchmarks._attention_choice import forced_attention
from benchmarks.gpu import graphed_step, resume
from benchmarks.gpu.graphed_step import NOT_AVAILABLE
from benchmarks.gpu.own_step import build_learner, own_loss, packed_inputs
from benchmarks.gpu.results import Report
from benchmarks.gpu.texts import first_batches, generated_text
from tests.gpu.devices import ON_EACH_DEVICE, rows_of, small_setting
from tests.replayed_function import no_device_needed


@ON_EACH_DEVICE
@pytest.mark.filterwarnings("default")  # the compiler's own
def test_a_run_that_is_saved_and_loaded_ends_at_the_same_bits(device: str, tmp_path: Path) -> None:
    rows = rows_of(resume.measure, device, Report(tmp_path / "r", ""))
    switched_on = [row for row in rows if row["deterministic switch"] == "on"]
    assert {row["layers"] for row in switched_on} == {resume.AS_WRITTEN, resume.GRAPHS, resume.COMPILED}
    assert len(switched_on) == 8
    without_a_card = {"outcome": NOT_AVAILABLE}
    for row in switched_on:
        is_left_out = row["layers"] == resume.GRAPHS and device == "cpu"
        assert without_a_card.items() <= row.items() if is_left_out else row["ok"], row


def test_a_run_with_graphs_is_resumed_by_capturing_them_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the stand-in in place of a graph, and the attention of a card."""
    monkeypatch.setattr(graphed_step, "graph_maker", no_device_needed)
    setting, text = small_setting("cpu"), generated_text(20, 50)
    config = setting.build_config("small", vocab_size=text.vocab_size)
    form = resume.Form(resume.GRAPHS, "bf16", "bf16", "on")
    with forced_attention("fused"):
        row = resume.compare(setting, config, first_batches(text, 4, 4, 16, seed=1), form)
    assert row["equal"]
    assert row["equal when repeated"]


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


def test_operations_without_a_deterministic_form_are_told_by_the_first_clause_of_their_warning() -> None:
    with resume.deterministic_algorithms("warn only") as clauses:
        assert torch.are_deterministic_algorithms_enabled()
        warnings.warn("put_ does not have a deterministic implementation, but ...", stacklevel=1)
        warnings.warn("Flash Attention defaults to a non-deterministic algorithm. To ...", stacklevel=1)
    assert clauses == [
        "Flash Attention defaults to a non-deterministic algorithm",
        "put_ does not have a deterministic implementation",
    ]
    assert not torch.are_deterministic_algorithms_enabled()


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


def test_an_operation_that_raises_with_the_switch_on_is_a_failure_with_its_message() -> None:
    setting = small_setting("cpu")

    def fail(*_: object) -> None:
        raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation\nmore")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(resume, "train", fail)
        row = resume.compare(setting, setting.build_config("small"), [], resume.FORMS[0])
    assert row == {"equal": False, "outcome": "failed: cumsum_cuda_kernel does not have a deterministic implementation"}
