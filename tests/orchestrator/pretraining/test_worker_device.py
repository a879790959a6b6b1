"""Device of a training worker: what a person can set where its card cannot be used.

Alone: .venv/bin/pytest tests/orchestrator/pretraining/test_worker_device.py
"""

from typing import Any

import pytest
import torch

from orchestrator.errors import ClusterError
from orchestrator.pretraining import worker as module
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.job import PretrainJob
from orchestrator.pretraining.worker import WorkerOrder
from orchestrator.specs import PretrainSpec

SPEC = PretrainSpec.model_validate({"corpus": {"files": ["a.txt"]}, "tokenizer": "words", "steps": 1})
NOTHING: Any = None


@pytest.mark.parametrize(
    ("teacher_digest", "field"), [(None, "execution.device"), ("ab12", "pretraining.execution.device")]
)
def test_a_worker_without_a_card_names_the_field_of_its_spec(
    teacher_digest: str | None, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    job = PretrainJob("run", 1, SPEC, NOTHING, None, NOTHING, None, teacher_digest=teacher_digest)
    with pytest.raises(ClusterError, match=rf", or set {field} cpu$"):
        module._train(WorkerOrder(job, NOTHING, "mark"), Worker(0, 1, torch.device("cuda")))
