"""Several processes, or threads, write at once. Alone: pytest tests/orchestrator/registry/test_concurrency.py"""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text

from orchestrator.base.errors import RegistryError
from orchestrator.base.results import MetricEvent
from orchestrator.registry import Registry
from orchestrator.registry.database import NEWEST_REVISION
from tests.orchestrator.registry.samples import new_run, newer_migrations
from tests.orchestrator.registry.writers import (
    NUM_ROUNDS,
    create,
    kill_writers,
    migrate,
    run_together,
    write,
)
from tests.waiting import PATIENCE_S

NUM_PROCESSES = 16


@pytest.mark.heavy
@pytest.mark.core
def test_processes_that_meet_at_an_empty_database_make_its_tables_once(location: str) -> None:
    lines = [line.split() for line in run_together(create, location, "", NUM_PROCESSES)]
    assert {revision for _, revision in lines} == {NEWEST_REVISION}
    with Registry(location) as registry:
        assert set(registry.runs().id) == {run_id for run_id, _ in lines}


@pytest.mark.heavy
@pytest.mark.core
def test_sixteen_writers_lose_nothing(location: str) -> None:
    with Registry(location) as registry:
        shared = new_run(registry)
        own = run_together(write, location, shared, NUM_PROCESSES)
        total = NUM_PROCESSES * NUM_ROUNDS
        assert [attempt.number for attempt in registry.attempts(shared)] == list(range(1, total + 1))
        assert sorted(registry.models.table().frame().version) == list(range(1, total + 1))
        for run_id in own:
            assert len(registry.metrics.history(run_id).records) == NUM_ROUNDS * 2
            assert registry.metrics.latest(run_id) == {"train.loss": 0.5, "train.rate": 1.0}


def test_as_many_threads_as_there_are_write_and_read_at_once(location: str) -> None:
    """Each may keep a connection for writing; none waits for another's."""
    with Registry(location) as registry, ThreadPoolExecutor(24 if location.endswith("sqlite") else 8) as threads:
        run_id, together = new_run(registry), threading.Barrier(threads._max_workers)

        def record(thread: int) -> None:
            together.wait(PATIENCE_S)
            for step in range(5):
                registry.metrics.record(run_id, [MetricEvent(step, "train", {f"loss_{thread}": 0.5})])

        list(threads.map(record, range(threads._max_workers)))
        assert registry.num_runs() == 1
        assert len(registry.metrics.latest(run_id)) == threads._max_workers


SEED = 20261122


@pytest.mark.heavy
@pytest.mark.core
def test_killed_writers_lose_nothing_that_was_acknowledged(location: str) -> None:
    generator = random.Random(SEED)
    with Registry(location) as registry:
        runs = {new_run(registry, name=f"seed {SEED}"): generator.randint(1, 20) for _ in range(6)}
    taken = kill_writers(location, runs)
    with Registry(location) as registry:
        for run_id, num_acknowledged in taken.items():
            steps = registry.metrics.history(run_id).values("step")
            assert steps == list(range(len(steps)))
            assert len(steps) - num_acknowledged in (0, 1)  # one may be written whose answer never came
        with registry._database.connection(writing=False) as connection:
            if connection.dialect.name == "sqlite":
                assert connection.scalar(text("PRAGMA integrity_check")) == "ok"


@pytest.mark.heavy
def test_of_processes_that_migrate_at_once_one_does_the_work(location: str, tmp_path: Path) -> None:
    with Registry(location) as registry:
        run_id = new_run(registry)
    folder = str(newer_migrations(tmp_path / "migrations", "CREATE TABLE stamps (stamp TEXT)"))  # twice is an error
    assert set(run_together(migrate, location, folder, 4)) == {"9999"}
    with Registry(location, read_only=True) as registry:
        assert registry.current_revision() == "9999"
        with pytest.raises(RegistryError, match="revision 9999, newer than this version knows; upgrade"):
            registry.run(run_id)
