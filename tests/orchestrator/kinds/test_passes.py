"""Passes over the text, as a plan tells them.

Alone: .venv/bin/pytest tests/orchestrator/kinds/test_passes.py
"""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import CorpusError
from orchestrator.kinds import passes
from orchestrator.settings import Settings
from tests.orchestrator.small_specs import PRETRAIN, TOKENIZER, pipeline, plan

SENTENCES = "".join(f"a cat sat {'a cat ' * (number % 7)}\n\n" for number in range(200))
LONG = {"phases": [{"max_seq_length": 16}], "global_batch_size": 4, "steps": 500}


def told(settings: Settings, **changes: Any) -> str:
    """Value of the row in which the plan of a pretraining tells its passes over the text."""
    return plan(settings, {**PRETRAIN, **LONG, **changes})["passes over the text"]


def number(text: str) -> float:
    """The number of passes in such a text."""
    return float(text.removeprefix("about ").split()[0].replace(",", ""))


@pytest.fixture(autouse=True)
def _text(settings: Settings) -> None:
    Path("corpus.txt").write_text(SENTENCES)


def test_a_short_text_is_counted(settings: Settings) -> None:
    text = told(settings)
    assert "about" not in text
    assert number(text) == pytest.approx(500 * 4 / 200, rel=0.1), "each of these documents is one example"


def test_of_a_long_text_the_beginning_is_looked_at(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = number(told(settings))
    monkeypatch.setattr(passes, "SAMPLE_BYTES", len(SENTENCES) // 3)
    text = told(settings)
    assert text.startswith("about ")
    assert "estimated from its first" in text
    assert number(text) == pytest.approx(counted, rel=0.25)


def test_without_a_tokenizer_the_bytes_are_counted(settings: Settings) -> None:
    stages = {"words": TOKENIZER, "model": {**PRETRAIN, **LONG, "tokenizer": "@words"}}
    text = plan(settings, pipeline(**stages))["passes over the text"]
    assert text.endswith("estimated from 4 bytes of text a token)")
    assert number(text) == pytest.approx(number(told(settings)), rel=0.5)


def test_very_many_passes_are_noted(settings: Settings) -> None:
    assert "note" not in plan(settings, {**PRETRAIN, **LONG})
    assert "lower steps or add text" in plan(settings, {**PRETRAIN, **LONG, "steps": 50_000})["note"]


def test_a_text_with_too_few_documents_is_refused(settings: Settings) -> None:
    Path("corpus.txt").write_text("a cat sat\n")
    with pytest.raises(CorpusError, match="sentence_objective"):
        told(settings)
