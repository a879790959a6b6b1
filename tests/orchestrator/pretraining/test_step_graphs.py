"""Runs whose steps are CUDA graphs, with a stand-in for a graph that calls the kernels again. Alone:
pytest tests/orchestrator/pretraining/test_step_graphs.py
"""

from functools import partial
from pathlib import Path

import pytest
import torch

from bert_core.cuda_graphs import Work
from orchestrator.pretraining import step_graphs
from orchestrator.pretraining.loop import TrainingLoop
from orchestrator.results import Event, MessageEvent
from tests.orchestrator.pretraining.small_run import keeping_losses, make_job, run

WITHOUT_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
EVERY = {"checkpoint_every_steps": 5, "log_every_steps": 1, "evaluate_every_steps": 8}


def run_at_once(work: Work) -> Work:
    work()
    return work


@pytest.fixture
def as_on_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice of a run on a card, with the stand-in."""
    monkeypatch.setattr(step_graphs, "capture_on", lambda device: run_at_once)
    monkeypatch.setattr(
        step_graphs, "_reason_against", lambda context: None if _asks(context) else "execution.cuda_graphs is never"
    )


def _asks(context: object) -> bool:
    return context.spec.execution.cuda_graphs == "auto"  # type: ignore[attr-defined, no-any-return]


def weights(loop: TrainingLoop) -> dict[str, torch.Tensor]:
    return loop.model.state_dict()


@pytest.mark.usefixtures("as_on_a_card")
@pytest.mark.training
def test_a_run_with_graphs_learns_what_one_without_them_does(tmp_path: Path) -> None:
    losses: dict[str, list[float]] = {"auto": [], "never": []}
    found = {}
    for choice, kept in losses.items():
        job = make_job(tmp_path / choice, steps=8, execution=EVERY | {"cuda_graphs": choice}, model=WITHOUT_DROPOUT)
        found[choice] = weights(run(job, keeping_losses(kept)))
    assert losses["auto"] == pytest.approx(losses["never"], rel=1e-4)
    assert all(torch.allclose(value, found["never"][name], atol=1e-4) for name, value in found["auto"].items())


@pytest.mark.usefixtures("as_on_a_card")
@pytest.mark.training
def test_a_run_with_graphs_and_dropout_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    job = partial(make_job, steps=8, execution=EVERY | {"cuda_graphs": "auto"})
    straight = weights(run(job(tmp_path / "straight"), lambda event: None))
    run(job(tmp_path / "cut"), lambda event: None, note_step=lambda step: step >= 5)
    events: list[Event] = []
    resumed = run(job(tmp_path / "cut", attempt=2), events.append)
    told = [event.text for event in events if isinstance(event, MessageEvent)]
    assert "steps are CUDA graphs" in told
    assert all(torch.equal(straight[name], value) for name, value in weights(resumed).items())


@pytest.mark.training
def test_a_run_that_began_with_graphs_and_cannot_go_on_so_is_warned(tmp_path: Path) -> None:
    job = partial(make_job, steps=8, execution=EVERY | {"cuda_graphs": "auto"})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(step_graphs, "capture_on", lambda device: run_at_once)
        patched.setattr(step_graphs, "_reason_against", lambda context: None)
        run(job(tmp_path), lambda event: None, note_step=lambda step: step >= 5)
    events: list[Event] = []
    run(job(tmp_path, attempt=2), events.append)
    warned = [event.text for event in events if isinstance(event, MessageEvent) and event.level == "warning"]
    assert any("single kernels from here on (the worker is on the cpu)" in text for text in warned)
