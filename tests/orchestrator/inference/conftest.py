"""A second encoder, which finds other documents than the first."""

import pytest

from tests.orchestrator.tiny_models import save_encoder


@pytest.fixture(scope="session")
def other_encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_encoder(tmp_path_factory.mktemp("models") / "other", seed=1)
