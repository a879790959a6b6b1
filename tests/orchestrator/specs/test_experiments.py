"""The specs in experiments/ load and say why they exist. Alone: pytest tests/orchestrator/specs/test_experiments.py"""

from pathlib import Path

import pytest

from orchestrator.specs import PipelineSpec, PretrainSpec, SweepSpec
from orchestrator.specs.loading import load_spec
from orchestrator.tasks.catalogue import ON_HUB
from tests.shared_data import shared_file

FOLDER = Path(__file__).parents[3] / "experiments"
EXPERIMENTS = sorted(FOLDER.glob("*.yaml"))
MADE = {"sweep_squad_sentences": "Which sentence holds the answer"}
"""Experiments on files that are made by the lines of a section of the lab log."""


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_an_experiment_loads_and_begins_with_its_reason(path: Path) -> None:
    assert path.read_text().startswith("# ")
    assert load_spec(path).name == path.stem


def test_the_experiments_hold_specs_and_nothing_else() -> None:
    assert {path.suffix for path in FOLDER.iterdir()} == {".yaml"}


def test_the_base_schedule_is_the_papers() -> None:
    spec = load_spec(FOLDER / "pretrain_base.yaml")
    assert isinstance(spec, PretrainSpec)
    assert spec.phase_steps() == ((128, 900_000, 256), (512, 100_000, 256))
    assert (spec.global_batch_size, spec.learning_rate, spec.warmup_ratio) == (256, 1e-4, 0.01)


def test_the_objectives_differ_in_their_fields_alone_and_every_sweep_compares_them_all() -> None:
    base, spec = load_spec(FOLDER / "pretrain_tiny_wikipedia.yaml"), load_spec(FOLDER / "ablate_objectives.yaml")
    assert isinstance(spec, PipelineSpec)
    encoders = {name: stage for name, stage in spec.stages.items() if isinstance(stage, PretrainSpec)}
    changed = {
        name.removeprefix("encoder."): {
            field
            for field in PretrainSpec.model_fields
            if getattr(stage.named(base.name), field) != getattr(base, field)
        }
        for name, stage in encoders.items()
    }
    fields = {"token_objective", "sentence_objective", "cross_documents", "mask_unit", "mask_mix", "model"}
    fields |= {"mlm_probability", "phases"}
    assert (len(changed), changed["next_sentence"], set().union(*changed.values())) == (11, set(), fields)
    assert encoders["encoder.falling"].phase_steps() == base.phase_steps()
    sweeps = [stage for stage in spec.stages.values() if isinstance(stage, SweepSpec)]
    assert [stage.task.id for stage in sweeps] == ["conll2003", "squad", "mrpc"]
    assert {stage.space["init_from"] for stage in sweeps} == {(*(f"@{name}" for name in encoders), "random")}


@pytest.mark.parametrize(
    "path",
    [path for path in EXPERIMENTS if path.stem.startswith("sweep_") and path.stem not in MADE],
    ids=lambda path: path.stem,
)
def test_a_sweep_finds_its_data_beside_the_checkout_or_on_the_hub(path: Path) -> None:
    spec = load_spec(path)
    assert isinstance(spec, SweepSpec)
    folder = spec.task.folder
    assert spec.task.id in ON_HUB if folder is None else any(shared_file(folder.removeprefix("data/")).iterdir())
