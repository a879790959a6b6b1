"""Backups: of a registry that is written to, before a migration, and what is refused.

pytest tests/orchestrator/registry/keeping/test_backups.py
"""

import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.errors import InputError, RegistryError
from orchestrator.registry import Registry, revisions
from orchestrator.registry.keeping.backups import back_up_registry
from orchestrator.registry.revisions import NEWEST_REVISION
from orchestrator.results import MetricEvent
from tests.orchestrator.registry.full_registries import fill_every_table
from tests.orchestrator.registry.samples import everything, new_run

OLD_REGISTRY = Path(__file__).parents[3] / "saved_before" / "registry_0001.sqlite"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A registry at the first revision."""
    (tmp_path / "lab").mkdir()
    return Path(shutil.copy(OLD_REGISTRY, tmp_path / "lab" / "registry.sqlite"))


def test_a_backup_has_every_row_and_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "registry.sqlite"
    with Registry(str(path)) as registry:
        fill_every_table(registry)
        before = everything(registry)
        made = back_up_registry(str(path), tmp_path / "copy.sqlite")  # with its newest part in the log
    with closing(sqlite3.connect(made.path)) as copy:
        assert copy.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    with Registry(str(made.path), read_only=True) as copied:
        assert everything(copied) == before
    assert (made.form, made.num_bytes) == ("sqlite", made.path.stat().st_size)


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
            steps = {name: copied.metrics.history(run_id, f"train.{name}")["step"].tolist() for name in "ab"}
        assert steps["a"] == steps["b"] == list(range(1, len(steps["a"]) + 1))


@pytest.mark.postgres
@pytest.mark.skipif(shutil.which("pg_restore") is None, reason="pg_dump and pg_restore are not on this machine")
def test_a_servers_registry_goes_through_pg_dump_and_back(postgres_location: str, tmp_path: Path) -> None:
    with Registry(postgres_location) as registry:
        fill_every_table(registry)
        before = everything(registry)
        made = back_up_registry(postgres_location, tmp_path / "lab.dump")
        assert made.form == "pg_dump"
        with registry._database.session(writing=True) as session:
            session.connection().exec_driver_sql("TRUNCATE runs, trash CASCADE")
        assert everything(registry)["runs"] == []
        registry.close()
        command = ["pg_restore", "--clean", "--no-owner", f"--dbname={postgres_location.partition('&options')[0]}"]
        subprocess.run([*command, str(made.path)], check=True)
        assert everything(registry) == before


@pytest.mark.postgres
def test_without_pg_dump_a_servers_backup_is_in_portable_form(
    postgres_location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Registry(postgres_location) as registry:
        fill_every_table(registry)
    monkeypatch.setenv("PATH", "")
    assert back_up_registry(postgres_location, tmp_path / "lab.backup").form == "portable"


def test_a_backup_never_replaces_what_is_there(tmp_path: Path) -> None:
    path, kept = tmp_path / "registry.sqlite", tmp_path / "kept.sqlite"
    with Registry(str(path)) as registry:
        new_run(registry)
    kept.write_text("mine")
    with pytest.raises(InputError, match="is there already; name another file, or give --overwrite"):
        back_up_registry(str(path), kept)
    with pytest.raises(InputError, match="is the registry itself"):
        back_up_registry(str(path), path, overwrite=True)
    with pytest.raises(InputError, match="is a folder"):
        back_up_registry(str(path), tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        back_up_registry(str(path), tmp_path / "typo" / "kept.sqlite")
    assert kept.read_text() == "mine"
    assert back_up_registry(str(path), kept, overwrite=True).num_bytes > 4


def test_what_is_no_registry_is_not_backed_up_and_not_made(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("my notes\n" * 100)
    for location, says in (("typo.sqlite", "There is no registry"), ("notes.txt", "is not a SQLite database")):
        with pytest.raises(RegistryError, match=says):
            back_up_registry(str(tmp_path / location), tmp_path / "copy.sqlite")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_migration_keeps_the_file_as_it_was(old: Path) -> None:
    before = sqlite3.connect(old).execute("SELECT * FROM runs ORDER BY id").fetchall()
    with Registry(str(old)) as registry:
        assert registry.upgrade() == NEWEST_REVISION
        assert registry.upgrade() == NEWEST_REVISION  # which changes nothing more, and keeps no second copy
    (kept,) = old.parent.glob("*.backup")
    assert kept.name.startswith("registry.sqlite.0001-")
    with closing(sqlite3.connect(kept)) as copy:
        assert copy.execute("SELECT version_num FROM registry_revision").fetchone() == ("0001",)
        assert copy.execute("SELECT * FROM runs ORDER BY id").fetchall() == before


@pytest.fixture
def next_revision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """One more revision than there is, which takes the runs' names away; returns the revision before it."""
    folder = Path(shutil.copytree(revisions.MIGRATIONS, tmp_path / "migrations"))
    (folder / "versions" / "9999_nameless.py").write_text(
        f"from alembic import op\n\nrevision = '9999'\ndown_revision = '{NEWEST_REVISION}'\n\n\n"
        "def upgrade() -> None:\n    op.execute(\"UPDATE runs SET name = ''\")\n"
    )
    monkeypatch.setattr(revisions, "MIGRATIONS", folder)
    monkeypatch.setattr(revisions, "NEWEST_REVISION", "9999")
    return NEWEST_REVISION


def recorded_before(location: str) -> str:
    """Record a run in a registry that is at the revision of before; return its id."""
    with pytest.MonkeyPatch.context() as patched, Registry(location) as registry:
        patched.setattr(revisions, "NEWEST_REVISION", NEWEST_REVISION)
        return new_run(registry, name="of before")


@pytest.mark.postgres
@pytest.mark.skipif(shutil.which("pg_restore") is None, reason="pg_dump and pg_restore are not on this machine")
def test_a_migration_of_a_servers_registry_keeps_it_as_it_was(
    postgres_location: str, tmp_path: Path, next_revision: str
) -> None:
    run_id = recorded_before(postgres_location)
    with Registry(postgres_location) as registry:
        assert registry.upgrade(tmp_path / "home" / "backups") == "9999"
        assert registry.run(run_id).name == ""
        (kept,) = (tmp_path / "home" / "backups").iterdir()
        assert f".{next_revision}-" in kept.name
        registry.close()
        command = ["pg_restore", "--clean", "--no-owner", f"--dbname={postgres_location.partition('&options')[0]}"]
        subprocess.run([*command, str(kept)], check=True)
        assert registry.current_revision() == next_revision


@pytest.mark.postgres
def test_without_pg_dump_a_servers_registry_is_not_migrated_unless_that_is_asked_for(
    postgres_location: str, tmp_path: Path, next_revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded_before(postgres_location)
    monkeypatch.setenv("PATH", "")
    with Registry(postgres_location) as registry:
        with pytest.raises(RegistryError) as caught:
            registry.upgrade(tmp_path / "backups")
        for words in ("pg_dump", "install PostgreSQL's client programs", "db export FILE", "--no-backup"):
            assert words in str(caught.value)
        assert registry.current_revision() == next_revision
        assert registry.upgrade(tmp_path / "backups", with_backup=False) == "9999"
    assert not (tmp_path / "backups").exists()


@pytest.mark.postgres
@pytest.mark.skipif(shutil.which("pg_dump") is None, reason="pg_dump is not on this machine")
def test_a_servers_backup_that_fails_leaves_its_registry_as_it_is(
    postgres_location: str, tmp_path: Path, next_revision: str
) -> None:
    recorded_before(postgres_location)
    (tmp_path / "backups").write_text("no folder")
    with Registry(postgres_location) as registry:
        with pytest.raises(RegistryError, match=rf"stays at revision {next_revision}: no backup .*--no-backup"):
            registry.upgrade(tmp_path / "backups")
        assert registry.current_revision() == next_revision


def test_a_migration_without_a_backup_is_asked_for(old: Path) -> None:
    with Registry(str(old)) as registry:
        registry.upgrade(with_backup=False)
    assert list(old.parent.glob("*.backup")) == []


def test_without_room_for_a_backup_nothing_is_migrated(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(url: object, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("orchestrator.registry.keeping.backups.copy_file", full)
    with Registry(str(old)) as registry:
        with pytest.raises(RegistryError, match=r"stays at revision 0001: .*No space left.*--no-backup"):
            registry.upgrade()
        assert registry.current_revision() == "0001"


def test_processes_that_migrate_at_once_keep_one_backup(old: Path) -> None:
    program = "import sys; from orchestrator.registry import Registry; print(Registry(sys.argv[1]).upgrade())"
    command = [sys.executable, "-c", program, str(old)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[0] for process in processes] == [f"{NEWEST_REVISION}\n"] * 4
    assert len(list(old.parent.glob("*.backup"))) == 1
