"""Training checkpoints of runs.

pytest tests/orchestrator/registry/runs/test_run_checkpoints.py
"""

from orchestrator.registry import Registry
from orchestrator.results import CheckpointEvent
from tests.orchestrator.registry.samples import new_run


def test_checkpoints_come_back_in_order(registry: Registry) -> None:
    run_id = new_run(registry)
    registry.checkpoints.record(run_id, [CheckpointEvent(20, "b", "d2", 2**40), CheckpointEvent(10, "a", "d1", 1)])
    assert [(c.step, c.path, c.num_bytes) for c in registry.checkpoints.of_run(run_id)] == [
        (10, "a", 1),
        (20, "b", 2**40),
    ]
