"""Note for a person on a trial whose attention, on its card, computes padding too, and on what would change that.

Alone: .venv/bin/pytest tests/orchestrator/finetuning/test_attention_note.py
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bert_core.config import BertConfig
from orchestrator.finetuning import attention_note as module
from orchestrator.finetuning.attention_note import attention_note, new_attention_note
from orchestrator.specs import RecipeSpec
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.finetuning.bench import Bench
from tests.orchestrator.training.cards_in_place import put_in_place

H200 = (9, 0)
BASE = BertConfig.from_size("base")
BF16 = RecipeSpec(precision="bf16")
TOLD = "attention computes padding too"


@pytest.mark.parametrize(
    ("config", "recipe", "named"),
    [
        (BASE, BF16, None),
        (BASE, RecipeSpec(), ["16 bits", "recipe.precision bf16"]),
        (replace(BASE, position_embedding_type="alibi"), BF16, ["linear biases"]),
        (replace(BASE, hidden_size=36, num_attention_heads=3), BF16, ["width"]),
        (BASE, RecipeSpec(freeze_encoder=True), None),
    ],
)
def test_the_note_says_why_padding_is_computed_and_what_would_change_that(
    config: BertConfig, recipe: RecipeSpec, named: list[str] | None
) -> None:
    note = attention_note(config, recipe, H200)
    assert (note is None) == (named is None)
    assert all(word in str(note) for word in named or ())


def test_an_old_card_is_told_of_elsewhere() -> None:
    assert attention_note(BASE, RecipeSpec(), (7, 5)) is None
    assert attention_note(BASE, RecipeSpec(), (8, 0)) is not None


def test_a_process_is_told_each_note_once(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(monkeypatch)
    monkeypatch.setattr(module, "_TOLD", set())
    fp32, biased = RecipeSpec(), replace(BASE, position_embedding_type="alibi")
    assert new_attention_note(BASE, fp32) == attention_note(BASE, fp32, H200)
    assert new_attention_note(BASE, fp32) is None
    assert new_attention_note(biased, fp32) is not None, "another model, another reason"
    monkeypatch.setattr(module.os, "getpid", lambda: -1)
    assert new_attention_note(BASE, fp32) is not None, "a forked process tells for itself"


@pytest.mark.training
@pytest.mark.parametrize(("precision", "told"), [("fp32", 1), ("bf16", 0)])
def test_a_trial_on_a_card_reports_the_note_with_its_first_evaluation(
    precision: str, told: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place(monkeypatch)
    monkeypatch.setattr(module, "_TOLD", set())
    bench = Bench(tiny_tasks.classification(tmp_path), tmp_path)
    bench.job = replace(bench.job, use_gpu=True)
    as_on_card = torch.device("cpu")

    class Moved:
        """Device that says that it is a card's, on which torch computes as on the CPU."""

        type = "cuda"

    def move(model: torch.nn.Module, device: object) -> torch.nn.Module:
        return to(model, as_on_card if isinstance(device, Moved) else device)

    to = torch.nn.Module.to
    monkeypatch.setattr("orchestrator.finetuning.trial.choose_device", lambda *values, **options: Moved())
    monkeypatch.setattr(torch.nn.Module, "to", move)
    assert bench.run(epochs=0.1, precision=precision).state == "COMPLETED"
    notes = [message.text for message in bench.messages if message.text.startswith(TOLD)]
    assert len(notes) == told


@pytest.mark.training
def test_a_trial_without_a_card_is_told_the_field_of_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    bench = Bench(tiny_tasks.classification(tmp_path), tmp_path)
    bench.job = replace(bench.job, use_gpu=True)
    result = bench.run(epochs=0.1)
    assert result.state == "FAILED"
    assert str(result.error).endswith(", or set execution.gpus_per_trial 0")
