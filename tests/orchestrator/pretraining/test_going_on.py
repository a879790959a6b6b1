"""Runs that go on from another run's state with its optimizer, and optimizers over an interruption.

Alone: pytest tests/orchestrator/pretraining/test_going_on.py
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from bert_core.checkpoints.training_state import read_training_state
from bert_core.constants import OptimizerName
from bert_core.errors import CheckpointError
from orchestrator.base.errors import SpecError
from orchestrator.base.results import Event, MetricEvent
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.job import PretrainJob, check_init_state
from orchestrator.pretraining.loop import TrainingLoop
from orchestrator.training.checkpoints import saved_states
from orchestrator.training.snapshots import STATE_FOLDER, snapshot_folders
from tests.orchestrator.pretraining.small_run import final_digests, make_job, run

pytestmark = pytest.mark.training

EXECUTION = {"checkpoint_every_steps": 6, "log_every_steps": 1, "evaluate_every_steps": 24}
STABLE = {"learning_rate_schedule": "constant", "warmup_ratio": 0.0, "phases": [{"max_seq_length": 32}]}


def ignore(event: Event) -> None:
    pass


@pytest.fixture(scope="module")
def stable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 12 steps at the peak, with the state after its eighth and its last step."""
    folder = tmp_path_factory.mktemp("stable")
    keeping = {**EXECUTION, "snapshot_steps": [8, 12], "snapshot_optimizer": True}
    run(make_job(folder, steps=12, execution=keeping, **STABLE), ignore)
    return folder


@pytest.fixture
def job_after(stable: Path, tmp_path: Path) -> Callable[..., PretrainJob]:
    """Make the job of a run, to step 24, that goes on from a step of the stable one."""

    def make(step: int, **changes: Any) -> PretrainJob:
        folder = snapshot_folders(str(stable / "run"))[step]
        values = {"init_from": "stable", "init_step": step, "execution": EXECUTION, **STABLE} | changes
        return replace(make_job(tmp_path, init_folder=folder, **values), init_state=f"{folder}/{STATE_FOLDER}")

    return make


def rates(events: list[Event]) -> dict[int, float]:
    found = (event for event in events if isinstance(event, MetricEvent) and event.split == "train")
    return {event.step: event.values["learning_rate"] for event in found}


@pytest.mark.core
@pytest.mark.parametrize("step", [8, 12])
def test_a_prolonged_run_has_the_bits_of_a_longer_one(
    step: int, job_after: Callable[..., PretrainJob], tmp_path: Path
) -> None:
    run(make_job(tmp_path / "longer", execution=EXECUTION, **STABLE), ignore)
    run(job_after(step), ignore)
    assert final_digests(tmp_path) == final_digests(tmp_path / "longer")


def test_a_stable_run_is_decayed_over_the_steps_that_are_left(job_after: Callable[..., PretrainJob]) -> None:
    events: list[Event] = []
    loop = run(job_after(8, learning_rate_schedule="linear", weight_decay=0.3, learning_rate=0.02), events.append)
    found = rates(events)
    assert list(found) == list(range(9, 25))
    assert [found[9], found[17], found[24]] == pytest.approx([0.02, 0.01, 0.02 / 16])
    assert [group["weight_decay"] for group in loop.optimizer.param_groups] == [0.3, 0.0], "settings are its own"


def test_the_decay_may_begin_later(job_after: Callable[..., PretrainJob]) -> None:
    events: list[Event] = []
    run(job_after(12, learning_rate_schedule="1-sqrt", decay_ratio=0.25), events.append)
    found = rates(events)
    assert [found[step] for step in (13, 18, 19)] == [0.01] * 3
    assert found[20] == pytest.approx(0.01 * (1 - (1 / 6) ** 0.5))


def test_a_run_that_goes_on_is_resumed_from_its_own_checkpoint(
    job_after: Callable[..., PretrainJob], tmp_path: Path
) -> None:
    run(job_after(8), ignore)
    expected = final_digests(tmp_path)
    for name in ("checkpoints.json", "checkpoints"):
        (tmp_path / "run" / name).rename(tmp_path / name)
    run(job_after(8), ignore, note_step=lambda step: step == 20)
    assert final_digests(tmp_path, 21) != expected
    run(replace(job_after(8), attempt=2, init_state="gone"), ignore)
    assert final_digests(tmp_path) == expected


def test_masks_follow_left_to_right_with_weights_and_optimizer(tmp_path: Path) -> None:
    """Masks after reading left to right, with the same optimizer, as experiments/causal_then_masked.yaml has it."""
    single = {**STABLE, "sentence_objective": "none", "execution": {**EXECUTION, "checkpoint_every_steps": 8}}
    first: list[Event] = []
    causal = run(make_job(tmp_path / "causal", steps=8, token_objective="left_to_right", **single), first.append)
    causal.write_model(tmp_path / "model")
    (state,) = saved_states(str(tmp_path / "causal" / "run")).values()
    going_on = {"init_from": "causal", "init_step": 8, "steps": 10}
    job = make_job(tmp_path / "masked", init_folder=str(tmp_path / "model"), **going_on, **single)
    loop = TrainingLoop(replace(job, init_state=state), Worker(), ignore)
    assert loop.restore() == 8
    assert not any(layer.causal_attention for layer in loop.model.bert.layers)
    for name, value in causal.model.state_dict().items():
        assert torch.equal(value, loop.model.state_dict()[name]), name
    own, theirs = (each.optimizer.state_dict()["state"] for each in (loop, causal))
    assert own.keys() == theirs.keys()
    assert all(torch.equal(own[key]["exp_avg"], theirs[key]["exp_avg"]) for key in own)


def test_a_run_goes_on_with_the_rotary_base_of_the_step(tmp_path: Path) -> None:
    """The folder that it starts from has that of the last phase of the run before."""
    model = {"family": "modern", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    common: dict[str, Any] = {"model": model, "sentence_objective": "none", "steps": 8}
    phases = [{"max_seq_length": 32, "share": 0.5}, {"max_seq_length": 32, "share": 0.5, "rotary_base": 500.0}]
    keeping = {"snapshot_steps": [4], "snapshot_optimizer": True}
    run(make_job(tmp_path / "a", phases=phases, execution=keeping, **common), ignore).write_model(tmp_path / "model")
    common |= {"init_from": "a", "init_step": 4, "phases": [{"max_seq_length": 32}]}
    job = make_job(
        tmp_path / "b", init_folder=str(tmp_path / "model"), execution={"checkpoint_every_steps": 2}, **common
    )
    job = replace(job, init_state=saved_states(str(tmp_path / "a" / "run"))[4])
    first = run(job, ignore, note_step=lambda step: step == 6)
    resumed = run(replace(job, attempt=2, init_state="gone"), ignore)
    assert {loop.model.bert.config.rotary_base for loop in (first, resumed)} == {10_000.0}


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "lamb"},
        {"adam_bias_correction": False},
        {"token_objective": "replaced_tokens", "sentence_objective": "none"},
    ],
)
def test_the_state_of_another_optimizer_is_refused(
    changes: dict[str, object], job_after: Callable[..., PretrainJob]
) -> None:
    name, *_ = changes
    job = job_after(8, **changes)
    with pytest.raises(SpecError, match=f"^{name} "):
        check_init_state(job.spec, read_training_state(Path(str(job.init_state))).extra)


def test_a_state_of_a_version_that_told_no_spec_is_taken(tmp_path: Path) -> None:
    spec = make_job(tmp_path, optimizer="lamb").spec
    check_init_state(spec, {"identity": {}})
    with pytest.raises(SpecError, match=r"^optimizer "):
        check_init_state(spec, {"identity": {}, "details": {"spec": {}}})


def test_the_state_of_another_model_is_refused(job_after: Callable[..., PretrainJob], tmp_path: Path) -> None:
    run(make_job(tmp_path / "wider", steps=8, model={"hidden_size": 64, "num_hidden_layers": 1}), ignore)
    states = saved_states(str(tmp_path / "wider" / "run"))
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        run(replace(job_after(8), init_state=states[8]), ignore)


def test_states_are_those_of_checkpoints_and_of_snapshots_that_keep_them(stable: Path, tmp_path: Path) -> None:
    assert list(saved_states(str(stable / "run"))) == [6, 8, 12]
    run(make_job(tmp_path, steps=3, execution={"snapshot_steps": [2]}), ignore)
    assert list(saved_states(str(tmp_path / "run"))) == [3]
    assert saved_states(str(tmp_path / "nothing")) == {}


RESUMED: dict[str, dict[str, object]] = {
    **{name: {"optimizer": name, "adam_bias_correction": False} for name in get_args(OptimizerName)[1:]},
    "replaced_tokens": {"token_objective": "replaced_tokens", "sentence_objective": "none", "optimizer": "muon"},
}
"""AdamW's resume, and that of masked tokens, have their own tests."""


@pytest.mark.parametrize("name", RESUMED)
def test_optimizers_and_objectives_are_resumed_to_the_same_bits(name: str, tmp_path: Path) -> None:
    changes = {**RESUMED[name], "steps": 8, "execution": EXECUTION}
    run(make_job(tmp_path / "straight", **changes), ignore)
    run(make_job(tmp_path / "stopped", **changes), ignore, note_step=lambda step: step == 3)
    run(make_job(tmp_path / "stopped", attempt=2, **changes), ignore)
    assert final_digests(tmp_path / "stopped", 8) == final_digests(tmp_path / "straight", 8)
