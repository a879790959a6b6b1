"""The specs in experiments/: each loads, says why it exists, and needs nothing but overrides to run elsewhere.

Alone: .venv/bin/pytest tests/orchestrator/specs/test_experiments.py
"""

from pathlib import Path

import pytest

from orchestrator.specs import PretrainSpec, SweepSpec
from orchestrator.specs.loading import load_spec
from tests.shared_data import shared_file

FOLDER = Path(__file__).parents[3] / "experiments"
EXPERIMENTS = sorted(FOLDER.glob("*.yaml"))
EXPECTED = {
    "ablation_full_sentences",
    "ablation_no_next_sentence",
    "ablation_sentence_order",
    "ablation_spans",
    "ablation_whole_words",
    "pretrain_base",
    "pretrain_tiny_wikipedia",
    "sweep_conll2003",
    "sweep_mrpc",
    "sweep_squad",
    "sweep_sst2",
    "sweep_stsb",
}


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_an_experiment_loads_and_begins_with_its_reason(path: Path) -> None:
    assert path.read_text().startswith("# ")
    assert load_spec(path).name == path.stem


def test_the_experiments_hold_specs_and_nothing_else() -> None:
    assert {path.stem for path in EXPERIMENTS} >= EXPECTED
    assert {path.suffix for path in FOLDER.iterdir()} == {".yaml"}


def test_the_base_schedule_is_the_papers() -> None:
    spec = load_spec(FOLDER / "pretrain_base.yaml")
    assert isinstance(spec, PretrainSpec)
    assert spec.phase_steps() == ((128, 900_000), (512, 100_000))
    assert (spec.global_batch_size, spec.learning_rate, spec.warmup_share) == (256, 1e-4, 0.01)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("ablation_no_next_sentence", {"sentence_objective"}),
        ("ablation_sentence_order", {"sentence_objective"}),
        ("ablation_full_sentences", {"sentence_objective", "cross_documents"}),
        ("ablation_whole_words", {"mask_unit"}),
        ("ablation_spans", {"mask_unit"}),
    ],
)
def test_an_ablation_differs_in_its_fields_alone_and_is_another_experiment(name: str, fields: set[str]) -> None:
    base, ablation = load_spec(FOLDER / "pretrain_tiny_wikipedia.yaml"), load_spec(FOLDER / f"{name}.yaml")
    changed = {field for field in PretrainSpec.model_fields if getattr(ablation, field) != getattr(base, field)}
    assert changed == fields | {"name"}
    assert ablation.fingerprint() != base.fingerprint()


@pytest.mark.parametrize(
    "path", [path for path in EXPERIMENTS if path.stem.startswith("sweep_")], ids=lambda path: path.stem
)
def test_a_sweep_finds_its_data_beside_the_checkout(path: Path) -> None:
    spec = load_spec(path)
    assert isinstance(spec, SweepSpec)
    assert spec.task.folder is not None
    assert any(shared_file(spec.task.folder.removeprefix("data/")).iterdir())
