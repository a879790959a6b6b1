"""Models to start from. Alone: pytest tests/orchestrator/drafting/test_start_model.py"""

from pathlib import Path

import pytest

from orchestrator.drafting.start_model import StartModel, registered_starts
from orchestrator.errors import NotFoundError
from orchestrator.registry import Registry
from orchestrator.results import ModelResult
from orchestrator.settings import Settings
from tests.orchestrator.tiny_models import WORDS, save_encoder


def test_a_models_tokenizer_is_measured(tmp_path: Path) -> None:
    settings = Settings.from_options(home=str(tmp_path / "home"), environ={})
    model = StartModel.find(save_encoder(tmp_path / "model", seed=0), settings)
    assert model.config.hidden_size == 16
    assert 1 <= model.tokens_per_word([WORDS]) < 3


def test_a_name_that_leads_nowhere_is_told_and_nothing_is_made(tmp_path: Path) -> None:
    settings = Settings.from_options(home=str(tmp_path / "home"), environ={})
    with pytest.raises(NotFoundError, match="no registered model"):
        StartModel.find("minilm", settings)
    assert registered_starts(settings) == ()
    assert not (tmp_path / "home").exists()


def test_pretrained_models_are_listed_and_fine_tuned_ones_are_not(tmp_path: Path) -> None:
    settings = Settings.from_options(home=str(tmp_path / "home"), environ={})
    settings.home.mkdir()
    with Registry(settings.registry) as registry:
        registry.models.register("wiki", ModelResult("a", "d" * 64, 100, "pretraining"))
        registry.models.register("reviews", ModelResult("b", "e" * 64, 100, "classification"))
    assert registered_starts(settings) == ("wiki",)
