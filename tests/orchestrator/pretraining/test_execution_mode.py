"""Execution modes, chosen once for a run: CUDA graphs, with a stand-in that calls the kernels again; compiled layers.

Run alone: pytest tests/orchestrator/pretraining/test_execution_mode.py
"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from bert_core.compiled_layers import compile_layers
from bert_core.cuda_graphs import Work
from bert_core.heads import BertForPreTraining
from orchestrator.base.errors import RunFailedError
from orchestrator.base.results import Event, MessageEvent
from orchestrator.pretraining import execution_mode
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.execution_mode import MIN_STEPS_TO_COMPILE, choose_compilation
from orchestrator.pretraining.loop import TrainingLoop
from orchestrator.pretraining.step import StepContext
from orchestrator.specs import PretrainSpec
from tests.bert_core.reference import small_config
from tests.orchestrator.pretraining.small_run import keeping_losses, make_job, run

WITHOUT_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
EVERY = {"checkpoint_every_steps": 5, "log_every_steps": 1, "evaluate_every_steps": 8}
COMPILED, PLAIN = {"layers_are_compiled": True}, {"layers_are_compiled": False}


def run_at_once(work: Work) -> Work:
    work()
    return work


@pytest.fixture
def as_on_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice of a run on a card, with the stand-in."""
    monkeypatch.setattr(execution_mode, "capture_on", lambda device: run_at_once)
    monkeypatch.setattr(
        execution_mode,
        "_reason_against_graphs",
        lambda context: None if context.spec.execution.cuda_graphs == "auto" else "execution.cuda_graphs is never",
    )


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
        patched.setattr(execution_mode, "capture_on", lambda device: run_at_once)
        patched.setattr(execution_mode, "_reason_against_graphs", lambda context: None)
        run(job(tmp_path), lambda event: None, note_step=lambda step: step >= 5)
    events: list[Event] = []
    run(job(tmp_path, attempt=2), events.append)
    warned = [event.text for event in events if isinstance(event, MessageEvent) and event.level == "warning"]
    assert any("single kernels from here on (the worker is on the cpu)" in text for text in warned)


class Compilation:
    """A run's choice, with what was told and warned of."""

    def __init__(self, compile_layers: str, steps: int = MIN_STEPS_TO_COMPILE) -> None:
        spec = PretrainSpec.model_validate(
            {
                "corpus": {"files": ["generated"]},
                "tokenizer": "generated",
                "model": {"size": "tiny"},
                "steps": steps,
                "execution": {"compile_layers": compile_layers},
            }
        )
        self.told: list[str] = []
        self.warned: list[str] = []
        model = BertForPreTraining.from_config(small_config())
        self.context = StepContext.build(spec, model, Worker(), self.warned.append)

    def choose(self, checkpoint: dict[str, bool] | None, has_graphs: bool = False) -> bool:
        return choose_compilation(self.context, checkpoint, has_graphs, self.told.append, self.warned.append)


@pytest.fixture
def cannot_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> float:
        raise RuntimeError("Found no C++ compiler\nand more")

    monkeypatch.setattr(execution_mode, "compile_layers", fail)


@pytest.mark.parametrize(
    ("asked", "has_graphs", "steps", "checkpoint", "expected"),
    [
        ("auto", True, MIN_STEPS_TO_COMPILE, None, True),
        ("auto", True, MIN_STEPS_TO_COMPILE - 1, None, False),
        ("auto", False, MIN_STEPS_TO_COMPILE, None, False),
        ("never", True, MIN_STEPS_TO_COMPILE, None, False),
        ("always", False, 10, None, True),
        ("auto", True, MIN_STEPS_TO_COMPILE, PLAIN, False),
        ("auto", True, MIN_STEPS_TO_COMPILE, {}, False),
        ("auto", False, 10, COMPILED, True),
    ],
)
def test_layers_are_compiled_in_long_runs_with_graphs_or_as_the_run_began(
    asked: str,
    has_graphs: bool,
    steps: int,
    checkpoint: dict[str, bool] | None,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(execution_mode, "compile_layers", lambda *arguments: calls.append(arguments) or 41.2)
    compilation = Compilation(asked, steps)
    assert compilation.choose(checkpoint, has_graphs) == expected
    assert len(calls) == len(compilation.told) == expected
    assert compilation.warned == []
    assert all("took 41 s" in line for line in compilation.told)


def test_a_choice_against_the_checkpoint_is_followed_and_warned_of() -> None:
    compilation = Compilation("never")
    assert not compilation.choose(COMPILED)
    (line,) = compilation.warned
    assert "were compiled up to the checkpoint and are not compiled from here on" in line


@pytest.mark.usefixtures("cannot_compile")
def test_a_compiler_that_fails_is_told_of_and_left_out() -> None:
    compilation = Compilation("auto")
    assert not compilation.choose(None, has_graphs=True)
    (line,) = compilation.warned
    assert "(RuntimeError: Found no C++ compiler); they run as they are" in line


@pytest.mark.usefixtures("cannot_compile")
def test_a_compiler_that_fails_ends_a_run_that_asks_for_it() -> None:
    with pytest.raises(RunFailedError, match=r"Found no C\+\+ compiler.*set execution.compile_layers to never"):
        Compilation("always").choose(None)


@pytest.mark.slow
@pytest.mark.training
@pytest.mark.filterwarnings("default")
def test_a_compiled_run_with_dropout_is_resumed_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, and cut after the checkpoint at step 5; graphs are run as they are, as kernels take a minute to make."""
    fast = partial(compile_layers, backend="aot_eager", num_first_rows=64)
    monkeypatch.setattr(execution_mode, "compile_layers", fast)
    job = partial(make_job, steps=8, execution=EVERY | {"compile_layers": "always"})

    straight = weights(run(job(tmp_path / "straight"), lambda event: None))
    run(job(tmp_path / "cut"), lambda event: None, note_step=lambda step: step >= 5)
    events: list[Event] = []
    resumed = run(job(tmp_path / "cut", attempt=2), events.append)
    told = [event.text for event in events if isinstance(event, MessageEvent)]
    assert any(line.startswith("the layers are compiled") for line in told)
    assert all(torch.equal(straight[name], value) for name, value in weights(resumed).items())
