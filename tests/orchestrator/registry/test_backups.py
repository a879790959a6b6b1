"""Backups while others write or one migrates. Alone: pytest tests/orchestrator/registry/test_backups.py"""

import shutil
import sqlite3
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.base.errors import InputError, RegistryError
from orchestrator.base.results import MetricEvent
from orchestrator.registry import Registry, database
from orchestrator.registry.backups import back_up_registry
from orchestrator.registry.database import NEWEST_REVISION
from tests.orchestrator.registry.samples import everything, fill_every_table, new_run, newer_migrations

needs_pg_dump = pytest.mark.skipif(shutil.which("pg_dump") is None, reason="pg_dump is not on this machine")


def restore_dump(path: Path, location: str) -> None:
    """Bring a server's tables back from an archive of `pg_dump`."""
    command = ["pg_restore", "--clean", "--no-owner", f"--dbname={location.partition('&options')[0]}", str(path)]
    subprocess.run(command, check=True)


def test_a_backup_has_every_row_and_is_one_file(tmp_path: Path) -> None:
    path, made = tmp_path / "registry.sqlite", tmp_path / "copy.sqlite"
    with Registry(str(path)) as registry:
        fill_every_table(registry)
        before = everything(registry)
        assert back_up_registry(str(path), made) == "sqlite"  # with its newest part in the log
    with closing(sqlite3.connect(made)) as copy:
        assert copy.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    with Registry(str(made), read_only=True) as copied:
        assert everything(copied) == before


def test_a_backup_is_made_while_others_write_and_has_whole_transactions(tmp_path: Path) -> None:
    path, is_done = tmp_path / "registry.sqlite", threading.Event()
    with Registry(str(path)) as registry:
        run_id = new_run(registry)

        def write() -> None:
            step = 0
            while not is_done.is_set():
                step += 1
                registry.metrics.record(run_id, [MetricEvent(step, "train", {"a": step, "b": step})])

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for number in range(5):
                back_up_registry(str(path), tmp_path / f"{number}.sqlite")
        finally:
            is_done.set()
            writer.join()
    for number in range(5):
        with Registry(str(tmp_path / f"{number}.sqlite"), read_only=True) as copied:
            steps = {name: copied.metrics.history(run_id, f"train.{name}").values("step") for name in "ab"}
        assert steps["a"] == steps["b"] == list(range(1, len(steps["a"]) + 1))


@pytest.mark.postgres
@needs_pg_dump
def test_a_servers_registry_goes_through_pg_dump_and_back(postgres_location: str, tmp_path: Path) -> None:
    with Registry(postgres_location) as registry:
        fill_every_table(registry)
        before = everything(registry)
        assert back_up_registry(postgres_location, tmp_path / "lab.dump") == "pg_dump"
        with registry._database.connection(writing=True) as connection:
            connection.exec_driver_sql("TRUNCATE all_runs CASCADE")
        assert everything(registry)["all_runs"] == []
        registry.close()
        restore_dump(tmp_path / "lab.dump", postgres_location)
        assert everything(registry) == before


@pytest.mark.postgres
def test_without_pg_dump_a_server_is_not_backed_up(
    postgres_location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Registry(postgres_location) as registry:
        new_run(registry)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RegistryError, match="pg_dump"):
        back_up_registry(postgres_location, tmp_path / "lab.backup")


def test_a_backup_never_replaces_what_is_there(tmp_path: Path) -> None:
    path, kept = tmp_path / "registry.sqlite", tmp_path / "kept.sqlite"
    with Registry(str(path)) as registry:
        new_run(registry)
    kept.write_text("mine")
    with pytest.raises(InputError, match="--overwrite"):
        back_up_registry(str(path), kept)
    for target in (path, tmp_path, tmp_path / "typo" / "kept.sqlite"):
        with pytest.raises(InputError):
            back_up_registry(str(path), target, overwrite=True)
    assert kept.read_text() == "mine"
    back_up_registry(str(path), kept, overwrite=True)
    assert kept.stat().st_size > 4


@pytest.mark.parametrize("location", ["typo.sqlite", "notes.txt"])
def test_what_is_no_registry_is_not_backed_up_and_not_made(tmp_path: Path, location: str) -> None:
    (tmp_path / "notes.txt").write_text("my notes\n" * 100)
    with pytest.raises(RegistryError, match=location):
        back_up_registry(str(tmp_path / location), tmp_path / "copy.sqlite")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.fixture
def older(location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The location of a registry that is a revision older than the newest, which takes the runs' names away."""
    with Registry(location) as registry:
        new_run(registry, name="kept")
    folder = newer_migrations(tmp_path / "migrations", "UPDATE all_runs SET name = ''")
    monkeypatch.setattr(database, "MIGRATIONS", folder)
    monkeypatch.setattr(database, "NEWEST_REVISION", "9999")
    return location


@needs_pg_dump
def test_a_migration_keeps_the_registry_as_it_was(older: str, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    with Registry(older) as registry:
        assert registry.upgrade(folder) == "9999"
        assert registry.upgrade(folder) == "9999"  # which changes nothing more, and keeps no second copy
        assert registry.runs()["name"].tolist() == [""]
        registry.close()
        (kept,) = [*tmp_path.rglob("*.backup")]
        assert f".{NEWEST_REVISION}-" in kept.name
        if older.startswith("postgresql"):
            restore_dump(kept, older)
            assert registry.current_revision() == NEWEST_REVISION
        else:
            with closing(sqlite3.connect(kept)) as copy:
                assert copy.execute("SELECT version_num FROM registry_revision").fetchone() == (NEWEST_REVISION,)
                assert copy.execute("SELECT name FROM runs").fetchall() == [("kept",)]


def test_an_older_schema_waits_for_a_person_who_may_do_without_a_backup(older: str, tmp_path: Path) -> None:
    for read_only in (True, False):
        with (
            Registry(older, read_only=read_only) as registry,
            pytest.raises(RegistryError, match=rf"\({NEWEST_REVISION}\).*orchestrator db upgrade"),
        ):
            registry.runs()
    with Registry(older) as registry:
        assert registry.upgrade(tmp_path / "backups", with_backup=False) == "9999"
    assert [*tmp_path.rglob("*.backup")] == []


def test_without_a_backup_nothing_is_migrated(older: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room for one, a folder that is none, or no `pg_dump`."""

    def full(url: object, path: Path) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "backups").write_text("no folder")
    monkeypatch.setattr("orchestrator.registry.backups.copy_file", full)
    with Registry(older) as registry:
        with pytest.raises(RegistryError, match="--no-backup"):
            registry.upgrade(tmp_path / "backups")
        monkeypatch.setenv("PATH", "")
        with pytest.raises(RegistryError, match="--no-backup"):
            registry.upgrade(tmp_path / "backups")
        assert registry.current_revision() == NEWEST_REVISION
