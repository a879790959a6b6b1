"""Several processes at once: the tables are made once, nothing that is written is lost or twice.

pytest tests/orchestrator/registry/test_concurrency.py
"""

from orchestrator.registry import Registry
from orchestrator.registry.revisions import NEWEST_REVISION
from tests.orchestrator.registry.samples import new_run
from tests.orchestrator.registry.writers import NUM_ROUNDS, create, run_together, write

NUM_PROCESSES = 16


def test_processes_that_meet_at_an_empty_database_make_its_tables_once(location: str) -> None:
    lines = [line.split() for line in run_together(create, location, "", NUM_PROCESSES)]
    assert {revision for _, revision in lines} == {NEWEST_REVISION}
    with Registry(location) as registry:
        assert set(registry.runs().id) == {run_id for run_id, _ in lines}


def test_sixteen_writers_lose_nothing(location: str) -> None:
    with Registry(location) as registry:
        shared = new_run(registry)
        own = run_together(write, location, shared, NUM_PROCESSES)
        total = NUM_PROCESSES * NUM_ROUNDS
        assert [attempt.number for attempt in registry.attempts(shared)] == list(range(1, total + 1))
        assert sorted(registry.models.frame().version) == list(range(1, total + 1))
        for run_id in own:
            assert len(registry.metrics.history(run_id)) == NUM_ROUNDS * 2
            assert registry.metrics.latest(run_id) == {"train.loss": 0.5, "train.rate": 1.0}
