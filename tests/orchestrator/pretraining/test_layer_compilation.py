"""Choice of compiled layers, once for a run. Alone: pytest tests/orchestrator/pretraining/test_layer_compilation.py"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from bert_core.compiled_layers import compile_layers
from bert_core.heads import BertForPreTraining
from orchestrator.errors import RunFailedError
from orchestrator.pretraining import layer_compilation
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.layer_compilation import FEWEST_STEPS, LayerCompilation
from orchestrator.results import Event, MessageEvent
from orchestrator.specs import PretrainSpec
from tests.bert_core.reference import small_config
from tests.orchestrator.pretraining.small_run import make_job, run

GPU, CPU = Worker(device=torch.device("cuda")), Worker()
COMPILED, PLAIN = {"layers_are_compiled": True}, {"layers_are_compiled": False}


def spec_of(compile_layers: str, steps: int = FEWEST_STEPS) -> PretrainSpec:
    return PretrainSpec.model_validate(
        {
            "corpus": {"files": ["generated"]},
            "tokenizer": "generated",
            "model": {"size": "tiny"},
            "steps": steps,
            "execution": {"compile_layers": compile_layers},
        }
    )


@pytest.fixture
def model() -> BertForPreTraining:
    return BertForPreTraining.from_config(small_config())


@pytest.fixture
def cannot_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> float:
        raise RuntimeError("Found no C++ compiler\nand more")

    monkeypatch.setattr(layer_compilation, "compile_layers", fail)


class Notes:
    """A run's choice, with what was told and warned of."""

    def __init__(self, spec: PretrainSpec, worker: Worker) -> None:
        self.told: list[str] = []
        self.warned: list[str] = []
        self.compilation = LayerCompilation(spec, worker, self.told.append, self.warned.append)


@pytest.mark.parametrize(
    ("asked", "has_graphs", "steps", "checkpoint", "expected"),
    [
        ("auto", True, FEWEST_STEPS, None, True),
        ("auto", True, FEWEST_STEPS - 1, None, False),
        ("auto", False, FEWEST_STEPS, None, False),
        ("never", True, FEWEST_STEPS, None, False),
        ("always", False, 10, None, True),
        ("auto", True, FEWEST_STEPS, PLAIN, False),
        ("auto", True, FEWEST_STEPS, {}, False),
        ("auto", False, 10, COMPILED, True),
    ],
)
def test_what_is_chosen(
    asked: str,
    has_graphs: bool,
    steps: int,
    checkpoint: dict[str, bool] | None,
    expected: bool,
    model: BertForPreTraining,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []

    def note_call(*arguments: Any) -> float:
        calls.append(arguments)
        return 41.2

    monkeypatch.setattr(layer_compilation, "compile_layers", note_call)
    notes = Notes(spec_of(asked, steps), GPU)
    notes.compilation.begin(model, checkpoint, has_graphs)
    assert len(calls) == expected
    assert notes.compilation.state() == {"layers_are_compiled": expected}
    assert notes.warned == []
    assert all("took 41 s" in line for line in notes.told)
    assert len(notes.told) == expected


def test_a_choice_against_the_checkpoint_is_followed_and_warned_of(model: BertForPreTraining) -> None:
    notes = Notes(spec_of("never"), CPU)
    notes.compilation.begin(model, COMPILED)
    assert notes.compilation.state() == PLAIN
    assert len(notes.warned) == 1
    assert "were compiled up to the checkpoint and are not compiled from here on" in notes.warned[0]


@pytest.mark.usefixtures("cannot_compile")
def test_a_compiler_that_fails_is_told_of_and_left_out(model: BertForPreTraining) -> None:
    notes = Notes(spec_of("auto"), GPU)
    notes.compilation.begin(model, None, has_graphs=True)
    assert notes.compilation.state() == PLAIN
    (line,) = notes.warned
    assert "(RuntimeError: Found no C++ compiler); they run as they are" in line


@pytest.mark.usefixtures("cannot_compile")
def test_a_compiler_that_fails_ends_a_run_that_asks_for_it(model: BertForPreTraining) -> None:
    notes = Notes(spec_of("always"), CPU)
    with pytest.raises(RunFailedError, match=r"Found no C\+\+ compiler.*set execution.compile_layers to never"):
        notes.compilation.begin(model, None)


@pytest.mark.slow
@pytest.mark.training
@pytest.mark.filterwarnings("default")
def test_a_compiled_run_with_dropout_is_resumed_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, and cut after the checkpoint at step 5; graphs are run as they are, as kernels take a minute to make."""
    fast = partial(compile_layers, backend="aot_eager", num_first_rows=64)
    monkeypatch.setattr(layer_compilation, "compile_layers", fast)
    execution = {"checkpoint_every_steps": 5, "log_every_steps": 1, "evaluate_every_steps": 8}
    job = partial(make_job, steps=8, execution=execution | {"compile_layers": "always"})

    weights = run(job(tmp_path / "straight"), lambda event: None).model.state_dict()
    run(job(tmp_path / "cut"), lambda event: None, note_step=lambda step: step >= 5)
    events: list[Event] = []
    resumed = run(job(tmp_path / "cut", attempt=2), events.append)
    told = [event.text for event in events if isinstance(event, MessageEvent)]
    assert any(line.startswith("the layers are compiled") for line in told)
    assert all(torch.equal(weights[name], value) for name, value in resumed.model.state_dict().items())
