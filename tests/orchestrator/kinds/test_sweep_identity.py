"""Identity of what a sweep's trials read: what changes it, and what does not.

Run alone: pytest tests/orchestrator/kinds/test_sweep_identity.py
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.base.settings import Settings
from orchestrator.finetuning.trial_journal import TrialJournal
from orchestrator.kinds import resolved_inputs
from orchestrator.kinds import sweep as module
from orchestrator.kinds.sweep import sweep_identity
from orchestrator.specs import SweepSpec
from tests.orchestrator.small_specs import SWEEP

SPEC = SweepSpec.model_validate({**SWEEP, "space": {"init_from": ["random", "short"]}})


def identity(settings: Settings) -> dict[str, str]:
    return sweep_identity(SPEC, resolved_inputs(SPEC, settings))


def change_configuration() -> None:
    path = Path("short/config.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "initializer_range": 0.5}))


def change_tokenizer(folder: str) -> None:
    train_wordpiece(["another text"], vocab_size=100, min_frequency=1).save(Path(folder))


def add_row() -> None:
    path = Path("task.csv")
    path.write_text(path.read_text() + "a cow,b\n")


CHANGES: dict[str, tuple[Callable[[], object], list[str]]] = {
    "data": (add_row, ["task.files.train", "task.files.validation"]),
    "weights": (lambda: Path("short/model.safetensors").write_bytes(b"others"), ["weights of short"]),
    "configuration": (change_configuration, ["configuration of short"]),
    "the model's tokenizer": (lambda: change_tokenizer("short"), ["tokenizer of short"]),
    "tokenizer": (lambda: change_tokenizer("words"), ["tokenizer words"]),
}


@pytest.mark.parametrize("what", CHANGES)
def test_each_change_is_named_alone(settings: Settings, what: str) -> None:
    before = identity(settings)
    assert identity(settings) == before
    change, names = CHANGES[what]
    change()
    after = identity(settings)
    assert [name for name in before if before[name] != after[name]] == names


def test_another_torch_and_another_version_of_training_are_named(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = identity(settings)
    TrialJournal(str(tmp_path / "run")).begin(before)
    monkeypatch.setattr(module, "version", lambda package: "9.0")
    monkeypatch.setattr(module, "_TRAINING_VERSION", 9)
    features, torch = TrialJournal(str(tmp_path / "run")).changes(identity(settings))
    assert features.startswith("features and training of this package: ")
    assert torch == f"torch: {before['torch']} → 9.0"
