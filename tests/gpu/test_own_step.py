"""The step that the benchmark times waits for nothing. Run alone: pytest tests/gpu/test_own_step.py

It needs nothing of the orchestrator, unlike test_synchronizations.py, which looks at a training run.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from benchmarks._attention_choice import forced_attention
from benchmarks.gpu.own_step import Learner, build_learner, own_loss, packed_inputs
from benchmarks.gpu.setting import in_precision
from benchmarks.gpu.texts import first_batches, generated_text
from tests.gpu.devices import small_setting
from tests.synchronizations import counted_synchronizations

ATTENTION_DROPOUT = pytest.mark.parametrize("attention_dropout", [0.0, 0.1])


def learner_and_loss(device: str, attention_dropout: float) -> tuple[Learner, Callable[[], Tensor]]:
    setting, text = small_setting(device), generated_text(50, 48)
    config = setting.build_config("small", vocab_size=text.vocab_size, attention_probs_dropout_prob=attention_dropout)
    learner = build_learner(config, setting.device)
    return learner, own_loss(learner, packed_inputs(first_batches(text, 1, 4, 32, seed=1)[0], setting.device))


@ATTENTION_DROPOUT
def test_forward_and_backward_have_no_operation_that_waits(attention_dropout: float) -> None:
    learner, loss = learner_and_loss("cpu", attention_dropout)
    # The CPU's own attention lays out groups on the host; that of CUDA is tried in its place.
    with forced_attention("fused"), counted_synchronizations() as waits:
        with in_precision("bf16", learner.device):
            value = loss()
        value.backward()
    assert waits == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@ATTENTION_DROPOUT
def test_nothing_in_a_step_waits_for_the_card(attention_dropout: float) -> None:
    learner, loss = learner_and_loss("cuda", attention_dropout)
    before = float(learner.step(loss))
    torch.cuda.set_sync_debug_mode("error")  # an operation that waits raises
    try:
        after = learner.step(loss)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert float(after) != before
