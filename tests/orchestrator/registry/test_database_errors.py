"""Errors that pass, and others. Alone: pytest tests/orchestrator/registry/test_database_errors.py"""

import re
import sqlite3
import traceback
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from orchestrator.base.errors import RegistryError, RegistryUnavailableError
from orchestrator.base.results import MetricEvent
from orchestrator.registry import Registry, connections
from tests.orchestrator.registry.samples import new_run


def measure(registry: Registry, run_id: str) -> None:
    registry.metrics.record(run_id, [MetricEvent(1, "train", {"loss": 0.5})])


def trouble(registry: Registry, run_id: str = "any") -> RegistryError:
    """What measuring raises."""
    with pytest.raises(RegistryError) as caught:
        measure(registry, run_id)
    assert "\n" not in str(caught.value)
    return caught.value


def execute(location: str, statement: str) -> None:
    engine = create_engine(make_url(location).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("DROP TABLE points", "is damaged .*points.*; restore it from a backup"),
        ("ALTER TABLE points RENAME epoch TO age", "is damaged .*epoch.*; restore it from a backup"),
    ],
)
def test_damaged_tables_are_not_waited_for(registry: Registry, damage: str, says: str) -> None:
    run_id = new_run(registry)
    with registry._database.connection(writing=True) as connection:
        connection.execute(text(damage))
    error = trouble(registry, run_id)
    assert not isinstance(error, RegistryUnavailableError)
    assert re.search(says, str(error))


def test_errors_hide_the_values_of_a_statement(registry: Registry) -> None:
    """Also those in the traceback that --debug prints."""
    value = "canary-7f3a"
    with registry._database.connection(writing=True) as connection:
        connection.execute(text("ALTER TABLE all_runs RENAME storage_path TO place"))
    with pytest.raises(RegistryError) as caught:
        new_run(registry, name=value)
    assert value not in "".join(traceback.format_exception(caught.value))


def test_a_lock_that_another_process_holds_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT_S", 0.02)
    path = tmp_path / "registry.sqlite"
    with Registry(str(path)) as registry:
        run_id = new_run(registry)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert isinstance(error := trouble(registry, run_id), RegistryUnavailableError)
        assert "held by another process" in str(error)
        other.close()
        measure(registry, run_id)


def test_a_full_disk_is_not_waited_for(tmp_path: Path) -> None:
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        run_id = new_run(registry)
        with registry._database.transaction() as transaction:
            transaction._cursor.execute("PRAGMA max_page_count = 1")  # SQLite makes it as many as there are
        many = [MetricEvent(step, "train", {"loss" * 100: 0.5}) for step in range(1000)]
        with pytest.raises(RegistryError, match="the disk is full; free some space and resume") as caught:
            registry.metrics.record(run_id, many)
    assert not isinstance(caught.value, RegistryUnavailableError)


@pytest.mark.postgres
def test_a_connection_that_the_server_ends_is_waited_for(postgres_location: str) -> None:
    with Registry(postgres_location) as registry:
        with (
            pytest.raises(RegistryUnavailableError, match="cannot be reached"),
            registry._database.connection(writing=True) as connection,
        ):
            connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        measure(registry, new_run(registry))


@pytest.mark.postgres
def test_a_missing_permission_is_not_waited_for(postgres_location: str) -> None:
    with Registry(postgres_location) as registry:
        run_id = new_run(registry)
        schema = make_url(postgres_location).query["options"].partition("=")[2]  # type: ignore[union-attr]
        guest = f"guest_{schema}"
        execute(postgres_location, f"CREATE ROLE {guest} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {guest}")
        execute(postgres_location, f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {guest}")
    with Registry(make_url(postgres_location).set(username=guest).render_as_string(hide_password=False)) as registry:
        error = trouble(registry, run_id)
        assert registry.run(run_id).id == run_id
    execute(postgres_location, f"DROP OWNED BY {guest}; DROP ROLE {guest}")
    assert not isinstance(error, RegistryUnavailableError)
    assert "permission denied" in str(error)
    assert "grant it" in str(error)


@pytest.mark.postgres
def test_a_server_without_a_free_place_is_waited_for(postgres_location: str) -> None:
    guest = make_url(postgres_location).query["options"].partition("=")[2] + "_late"  # type: ignore[union-attr]
    execute(postgres_location, f"CREATE ROLE {guest} LOGIN CONNECTION LIMIT 0")
    with Registry(make_url(postgres_location).set(username=guest).render_as_string(hide_password=False)) as registry:
        error = trouble(registry)
    execute(postgres_location, f"DROP ROLE {guest}")
    assert isinstance(error, RegistryUnavailableError)
