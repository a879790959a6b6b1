"""Tokenizers and corpora as kinds of runs: what a plan tells of them, what they say and what is recorded.

pytest tests/orchestrator/kinds/test_corpus.py
"""

import logging
from pathlib import Path

import pytest

from orchestrator.base.results import DatasetResult
from orchestrator.base.settings import Settings
from orchestrator.kinds import resolved_inputs
from orchestrator.kinds.corpus import TokenizerKind, log_dataset
from orchestrator.registry.recorder import Recorder
from orchestrator.specs import TokenizerSpec
from tests.orchestrator.kinds.contexts import Notebook, context_of
from tests.orchestrator.kinds.samples import complete
from tests.orchestrator.small_specs import STORE, TOKENIZER, pipeline, plan


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
    assert recorder.registry.datasets.table(run.id).values("fingerprint") == ["c" * 64]


def test_a_tokenizers_plan_has_its_text_and_its_vocabulary(settings: Settings) -> None:
    assert plan(settings, TOKENIZER) == {
        "kind": "tokenizer",
        "text": "1 file, 21 bytes as stored",
        "vocabulary": "at most 100 entries",
        "resources": "1 CPU",
    }


def test_a_tokenizer_run_trains_and_says_how_many_entries(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    Path("corpus.txt").write_text("\n\n".join(f"a cat sat on mat {number}" for number in range(60)))
    spec, book = TokenizerSpec.model_validate(TOKENIZER), Notebook()
    result = TokenizerKind().run(spec, resolved_inputs(spec, settings), context_of(settings, book))
    assert (Path(result.folder) / "tokenizer.json").exists()
    assert caplog.messages[0].startswith(f"tokenizer: {result.vocab_size} entries")
    assert "in place of 100" in caplog.messages[1]


def test_a_later_stage_is_planned_with_the_size_that_a_tokenizer_stage_asks_for(settings: Settings) -> None:
    sweep = {"kind": "pretrain", "corpus": STORE["corpus"], "tokenizer": "@words", "steps": 1}
    small, large = (
        plan(settings, pipeline(words={**TOKENIZER, "vocab_size": size}, model=sweep))["parameters"]
        for size in (100, 300)
    )
    difference = int(large.replace(",", "")) - int(small.replace(",", ""))
    assert difference == 200 * (128 + 1), "an embedding and an output bias for each entry"


def test_a_recorded_tokenizer_is_found_again_through_its_run(recorder: Recorder) -> None:
    run = recorder.start({"kind": "tokenizer"}, "t")
    complete(recorder, run.id, "tokenizer")
    (row,) = recorder.registry.datasets.table(run.id).records
    assert (row["kind"], row["path"], row["counts"]) == ("tokenizer", "tokenizers/t", {"vocab_size": 30522})
    assert recorder.registry.metrics.latest(run.id) == {"fertility": 1.2}
