"""Between two logged steps the training waits for nothing that a GPU computes. Alone:
pytest tests/orchestrator/pretraining/test_synchronizations.py

Operations are recorded on the CPU, with the attention that a GPU gets; tests/gpu/test_synchronizations.py does the same
on a GPU, where PyTorch itself tells.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from bert_core import attention
from bert_core.attention.padded import FusedAttention
from orchestrator.pretraining import loop as loop_module
from orchestrator.pretraining.distillation import MaskedTokenLoss
from orchestrator.pretraining.job import PretrainJob, build_model
from orchestrator.specs.distill import LossWeightsSpec
from tests.orchestrator.pretraining.small_run import make_job, run
from tests.synchronizations import counted_synchronizations

LOG_EVERY = 5
RARELY = {"log_every_steps": LOG_EVERY, "checkpoint_every_steps": 24, "evaluate_every_steps": 24}
SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
RUNS: dict[str, dict[str, object]] = {
    "masked_lm and next_sentence": {},
    "span boundary": {
        "mask_unit": "span",
        "sentence_objective": "none",
        "model": SMALL | {"span_boundary_objective": True},
    },
    "modern": {"model": SMALL | {"family": "modern"}, "sentence_objective": "none"},
    "left_to_right": {"token_objective": "left_to_right", "sentence_objective": "none"},
    "replaced_tokens": {"token_objective": "replaced_tokens", "sentence_objective": "none"},
    "micro-batches in bf16": {"micro_batch_size": 3, "precision": "bf16"},
}


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the CPU take the ways of a GPU, where reading a number costs a wait."""
    monkeypatch.setattr(attention, "choose_backend", lambda call: FusedAttention())
    monkeypatch.setattr(loop_module, "_READ_AT_ONCE", frozenset())


def waits_by_step(job: PretrainJob) -> dict[int, list[str]]:
    """What each step of a run waited for, by step counted from 1."""
    found: dict[int, list[str]] = {}
    with counted_synchronizations() as waits:

        def note(step: int) -> bool:
            # Clipping moves norms to the device of the first one, where on a single GPU they are; a vote is the host's.
            free = (
                "to (orchestrator/pretraining/step.py:",
                "_local_scalar_dense (orchestrator/pretraining/collectives.py:",
            )
            found[step] = [wait for wait in waits if not wait.startswith(free)]
            waits.clear()
            return False

        run(job, lambda event: None, note_step=note)
    return found


def assert_only_logged_steps_wait(found: dict[int, list[str]]) -> None:
    assert list(found) == list(range(1, 13))
    between = {step: waits for step, waits in found.items() if step % LOG_EVERY and 1 < step < 12}
    assert list(between) == [2, 3, 4, 6, 7, 8, 9, 11]
    assert not any(between.values()), between
    assert found[LOG_EVERY], "the numbers of a logged step are read, and that is seen"


@pytest.mark.training
@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("name", RUNS)
def test_nothing_waits_between_two_logged_steps(tmp_path: Path, name: str) -> None:
    assert_only_logged_steps_wait(waits_by_step(make_job(tmp_path, steps=12, execution=RARELY, **RUNS[name])))


@pytest.mark.training
@pytest.mark.usefixtures("as_on_a_gpu")
def test_a_teacher_lets_nothing_wait(tmp_path: Path) -> None:
    job = make_job(tmp_path, steps=12, execution=RARELY)
    build_model(job).save_pretrained(tmp_path / "teacher")
    loss = MaskedTokenLoss(str(tmp_path / "teacher"), LossWeightsSpec())
    assert_only_logged_steps_wait(waits_by_step(replace(job, loss=loss)))
