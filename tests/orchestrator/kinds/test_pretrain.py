"""Pretraining as a kind of run: what it refuses, plans, takes of the cluster and records.

pytest tests/orchestrator/kinds/test_pretrain.py
"""

import pytest

from bert_core.errors import TokenizerError
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.registry.recorder import Recorder
from orchestrator.results import MetricEvent
from orchestrator.settings import Settings
from tests.orchestrator.kinds.samples import complete
from tests.orchestrator.small_specs import (
    PRETRAIN,
    check,
)


def test_a_tokenizer_that_the_model_was_not_trained_with(settings: Settings) -> None:
    train_wordpiece(["quite other words here"], vocab_size=200, min_frequency=1).save("others")
    model = {**PRETRAIN, "init_from": "short", "tokenizer": "others", "phases": [{"max_seq_length": 40}]}
    with pytest.raises(TokenizerError, match="use the tokenizer"):
        check(settings, model=model)


def test_a_pretraining_registers_its_model_under_the_specs_name(recorder: Recorder) -> None:
    run = recorder.start({"kind": "pretrain", "name": "tiny wiki", "seed": 3}, "f", name="again")
    recorder.record_events(run.id, [MetricEvent(100, "train", {"mlm_loss": 2.0})])
    complete(recorder, run.id, "pretrain")
    registry = recorder.registry
    assert registry.latest_metrics(run.id) == {"mlm_loss": 2.5, "perplexity": 12.2, "train.mlm_loss": 2.0}
    model = registry.model("tiny wiki")
    assert (model.run_id, model.head, model.folder) == (run.id, "pretraining", registry.run(run.id).model_folder)
    assert registry.run(run.id).seed == 3
