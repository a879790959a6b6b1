"""Where a registry can be, and where it cannot. Alone: pytest tests/orchestrator/registry/test_opening.py"""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import delete

from orchestrator.base.errors import NotFoundError, RegistryError, RegistryUnavailableError
from orchestrator.registry import Registry
from orchestrator.registry.location import resolve_url
from orchestrator.registry.tables import ALL_RUNS
from tests.orchestrator.registry.samples import new_run


def refusal(location: str | Path) -> str:
    """What using a registry there says."""
    with pytest.raises(RegistryError) as caught, Registry(str(location)) as registry:
        registry.runs()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_making_a_registry_opens_nothing(tmp_path: Path) -> None:
    Registry(str(tmp_path / "deep" / "registry.sqlite"))
    assert list(tmp_path.iterdir()) == []


def test_a_path_and_a_url_are_the_same_registry(tmp_path: Path) -> None:
    path = tmp_path / "registry.sqlite"
    with Registry(str(path)) as registry:
        run_id = new_run(registry)
    for same in (f"sqlite:///{path}", f"sqlite+pysqlite:///{path}"):
        with Registry(same) as registry:
            assert registry.run(run_id).id == run_id


def test_sqlite_is_opened_with_a_write_ahead_log_and_foreign_keys(tmp_path: Path) -> None:
    with (
        Registry(str(tmp_path / "registry.sqlite")) as registry,
        registry._database.connection(writing=True) as connection,
    ):
        pragma = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in
                  ("journal_mode", "foreign_keys", "synchronous", "busy_timeout")}  # fmt: skip
    assert pragma == {"journal_mode": "wal", "foreign_keys": 1, "synchronous": 1, "busy_timeout": 30_000}


def test_a_folder_is_no_registry(tmp_path: Path) -> None:
    assert f"{tmp_path} is a folder; name a file in it" in refusal(tmp_path)
    with pytest.raises(RegistryError, match="is a folder"), Registry(str(tmp_path), read_only=True) as registry:
        registry.runs()
    with Registry(str(tmp_path / ("x" * 300)), read_only=True) as registry:
        assert registry.runs().empty, "a name that is too long is there no more than another"


def test_a_text_file_is_no_registry_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes\n" * 100)
    assert f"{path} is not a SQLite database" in refusal(path)
    assert path.read_text() == "my notes\n" * 100


def test_a_damaged_registry_says_so(tmp_path: Path) -> None:
    path = tmp_path / "registry.sqlite"
    with Registry(str(path)) as registry:
        new_run(registry)
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)
    message = refusal(path)
    assert str(path) in message
    assert "damaged" in message


def test_a_path_through_a_file_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be opened" in refusal(tmp_path / "file" / "registry.sqlite")


def as_nobody(path: Path, statement: str) -> str:
    """What a statement says in a process of its own: root may write everywhere, so root becomes nobody first."""
    program = (
        "import os, sys, orchestrator.registry.registry, orchestrator.registry.selection, pandas\n"
        "import orchestrator.specs.recipe, alembic.script, orchestrator.registry.lifecycle\n"
        "from orchestrator.registry import Registry\n"
        "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        f"try: {statement}\nexcept Exception as error: print(type(error).__name__, error)\n"
    )
    return subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("what", ["folder", "file"])
@pytest.mark.heavy
def test_a_place_that_cannot_be_written_says_so(what: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, path = Path(name), Path(name) / "registry.sqlite"
        folder.chmod(0o755)
        if what == "file":
            with Registry(str(path)) as registry:
                new_run(registry)
            path.chmod(0o444)
        folder.chmod(0o555)
        create = "Registry(sys.argv[1]).lifecycle.create(kind='corpus', name='x', fingerprint='f', spec={})"
        said = as_nobody(path, create)
        folder.chmod(0o755)
    assert said.startswith(f"RegistryError The registry {path} cannot be ")
    assert "check " in said


def test_a_session_for_reading_cannot_write(registry: Registry) -> None:
    run_id = new_run(registry)
    with (
        pytest.raises(RegistryError, match="cannot be written"),
        registry._database.connection(writing=False) as connection,
    ):
        connection.execute(delete(ALL_RUNS))
    assert registry.run(run_id).id == run_id
    new_run(registry)


def test_a_registry_opened_for_reading_writes_nothing(registry: Registry, location: str) -> None:
    run_id = new_run(registry)
    with Registry(location, read_only=True) as reader:
        assert reader.run(run_id).id == run_id
        for write in (lambda: new_run(reader), reader.upgrade):
            with pytest.raises(RegistryError, match="open for reading only"):
                write()


def test_reading_where_no_registry_is_finds_nothing_and_leaves_nothing(location: str, tmp_path: Path) -> None:
    with Registry(location, read_only=True) as reader:
        assert reader.current_revision() is None
        assert reader.runs("metrics.f1 > 0.5").empty
        assert reader.models.table().records == []
        with pytest.raises(NotFoundError, match="the registry has no run yet"):
            reader.run("7f3a")
    with Registry(location, read_only=True) as reader:
        assert reader.current_revision() is None
    assert list(tmp_path.iterdir()) == []


def test_threads_read_a_registry_before_its_first_run_and_then_that_run(location: str) -> None:
    with Registry(location, read_only=True) as reader, ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda _: len(reader.runs()), range(64))) == {0}
        with Registry(location) as writer:
            new_run(writer)
        assert set(threads.map(lambda _: len(reader.runs()), range(64))) == {1}


@pytest.mark.parametrize("folder_mode", [0o555, 0o777])
@pytest.mark.heavy
def test_a_registry_that_others_own_can_be_read(folder_mode: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, path = Path(name), Path(name) / "a #1?.sqlite"
        with Registry(str(path)) as registry:
            new_run(registry, name="kept")
        path.chmod(0o444)
        folder.chmod(folder_mode)
        said = as_nobody(path, "print(*Registry(sys.argv[1], read_only=True).runs()['name'])")
        folder.chmod(0o755)
        assert said == "kept\n"


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    """It may come back: it is waited for."""
    with (
        Registry("postgresql://me:canary@127.0.0.1:1/laboratory") as registry,
        pytest.raises(RegistryUnavailableError) as caught,
    ):
        registry.runs()
    message = str(caught.value)
    assert "postgresql://me:***@127.0.0.1:1/laboratory cannot be reached" in message
    assert "canary" not in message


@pytest.mark.parametrize(
    "url", ["mysql://me:canary@host/db", "postgresql://me:canary@host:port/db", "sqlite://", ":memory:", ""]
)
def test_a_url_that_cannot_be_meant_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(RegistryError, match=r"needs a path to a \.sqlite file") as caught:
        Registry(url)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_every_spelling_of_postgresql_is_psycopg(scheme: str) -> None:
    assert resolve_url(f"{scheme}://me@host/db").drivername == "postgresql+psycopg"


def test_a_private_file_holds_the_url(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text(f"sqlite:///{tmp_path}/registry.sqlite\n")
    path.chmod(0o600)
    with Registry(f"file:{path}") as registry:
        new_run(registry)
    assert (tmp_path / "registry.sqlite").exists()


def test_a_url_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text("postgresql://me:canary@host/db")
    path.chmod(0o640)
    with pytest.raises(RegistryError, match=f"chmod 600 {path}"):
        Registry(f"file:{path}")


def test_a_url_file_that_is_missing_or_names_another_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "url"
    with pytest.raises(RegistryError, match="cannot be read: No such file"):
        Registry(f"file:{path}")
    path.write_text(f"file:{path}")
    path.chmod(0o600)
    with pytest.raises(RegistryError, match="not the name of another file"):
        Registry(f"file:{path}")
