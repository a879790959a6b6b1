"""What a driver says when training ends badly. Alone: pytest tests/orchestrator/pretraining/test_launch.py"""

from typing import Any

import pytest
import ray.exceptions
import ray.train

from orchestrator.errors import ClusterError, OrchestratorError, RunFailedError
from orchestrator.pretraining.launch import _drain, _Fit


class Trainer:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def fit(self) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            ray.train.WorkerGroupError("workers failed", {1: RuntimeError("Traceback\nout of memory")}),
            RunFailedError,
            "a training worker failed: out of memory; see orchestrator runs logs 7f3a, then orchestrator resume 7f3a",
        ),
        (ray.exceptions.RaySystemError("gone"), ClusterError, "Ray could not carry out the training: .*gone"),
        (ValueError("odd"), RunFailedError, "training failed: odd"),
    ],
)
def test_the_reason_is_one_line_and_says_how_to_go_on(
    error: Exception, kind: type[OrchestratorError], message: str
) -> None:
    trainer: Any = Trainer(error)
    fit = _Fit(trainer)
    fit.run()
    with pytest.raises(kind, match=message):
        fit.raise_reason("7f3a")


def test_a_lost_event_queue_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(reference: object) -> None:
        raise ray.exceptions.RaySystemError("node died")

    class EventQueue:
        class take:  # noqa: N801
            @staticmethod
            def remote() -> None: ...

    monkeypatch.setattr(ray, "get", lose)
    with pytest.raises(ClusterError, match=r"lost the process that collects measurements: .*orchestrator resume 7f3a"):
        _drain(EventQueue, lambda event: None, "7f3a")
