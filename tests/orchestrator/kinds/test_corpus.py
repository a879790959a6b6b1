"""Corpora as a kind of run: what a plan tells of them, what is said and recorded of a token store.

pytest tests/orchestrator/kinds/test_corpus.py
"""

import logging

import pytest

from orchestrator.kinds.messages import log_dataset
from orchestrator.registry.recorder import Recorder
from orchestrator.results import DatasetResult
from orchestrator.settings import Settings
from tests.orchestrator.kinds.samples import complete
from tests.orchestrator.small_specs import STORE, plan


def test_a_corpus_plan_has_its_text(settings: Settings) -> None:
    assert plan(settings, STORE) == {
        "kind": "corpus",
        "text": "1 file, 21 bytes as stored",
        "disk": "10 bytes of token store",
        "resources": "1 CPU",
    }


@pytest.mark.parametrize(("num_validation", "is_warned"), [(0, True), (3, False)])
def test_an_empty_validation_set_is_warned_of(
    num_validation: int, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    counts = {
        "num_train_documents": 10,
        "num_train_tokens": 100,
        "num_validation_documents": num_validation,
        "num_bad_records": 0,
    }
    log_dataset(DatasetResult("a.txt", "corpus", "f" * 64, "store", counts, ()))
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any("validation_fraction" in line for line in warnings) is is_warned


def test_a_recorded_token_store_is_found_again_through_its_run(recorder: Recorder) -> None:
    run = recorder.start({"kind": "corpus"}, "c")
    complete(recorder, run.id, "corpus")
    assert list(recorder.registry.datasets.frame(run.id).fingerprint) == ["c" * 64]
