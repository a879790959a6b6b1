"""The tables: made whole or not at all. Alone: pytest tests/orchestrator/registry/test_revisions.py"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, make_url, text

from orchestrator.base.errors import RegistryError
from orchestrator.registry import Registry
from orchestrator.registry.connections import VERSION_TABLE
from orchestrator.registry.database import MIGRATIONS, NEWEST_REVISION
from orchestrator.registry.location import resolve_url
from orchestrator.registry.tables import METADATA
from tests.orchestrator.registry.samples import new_run


@pytest.fixture
def registry(location: str) -> Iterator[Registry]:
    """A registry without tables."""
    with Registry(location) as opened:
        yield opened


def execute(location: str, statement: str) -> None:
    engine = create_engine(resolve_url(location))
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def test_an_empty_database_gets_the_tables_that_the_code_maps(registry: Registry, location: str) -> None:
    assert registry.current_revision() is None
    assert registry.runs().empty
    assert registry.current_revision() == registry.upgrade() == NEWEST_REVISION
    engine = create_engine(resolve_url(location))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, METADATA) == []
    engine.dispose()


def test_the_newest_script_is_the_newest_revision() -> None:
    assert ScriptDirectory(str(MIGRATIONS), version_locations=[str(MIGRATIONS)]).get_heads() == [NEWEST_REVISION]


@pytest.mark.parametrize(("revision", "says"), [("9999", "newer"), ("0009", "of an earlier version")])
def test_tables_of_another_version_are_refused_and_stay_as_they_are(
    registry: Registry, location: str, revision: str, says: str
) -> None:
    registry.upgrade()
    registry.close()
    execute(location, f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'")
    for use in (registry.runs, registry.upgrade):
        with pytest.raises(RegistryError, match=f"revision {revision}, {says}"):
            use()
    assert registry.current_revision() == revision


def test_making_the_tables_breaks_off_whole(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patched:
        patched.setattr("orchestrator.registry.database.insert", broken)
        with pytest.raises(RuntimeError, match="power cut"):
            registry.upgrade()
    assert registry.current_revision() is None
    assert new_run(registry)


def test_a_database_of_something_else_is_left_alone(registry: Registry, location: str) -> None:
    if resolve_url(location).get_backend_name() == "sqlite":
        registry.current_revision()  # makes the folder
    execute(location, "CREATE TABLE runs (x integer)")
    for use in (registry.runs, registry.current_revision, registry.upgrade, lambda: new_run(registry)):
        with pytest.raises(RegistryError, match="runs"):
            use()


def test_a_sqlite_file_of_another_program_keeps_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    execute(str(path), "CREATE TABLE customers (name text)")
    before = path.read_bytes()
    for read_only in (False, True):
        with Registry(str(path), read_only=read_only) as registry, pytest.raises(RegistryError, match="customers"):
            registry.open()
    assert [*tmp_path.iterdir()] == [path]
    assert path.read_bytes() == before


@pytest.mark.heavy
def test_a_password_is_in_no_message_and_no_representation(postgres_location: str) -> None:
    url = make_url(postgres_location).set(password="canary-1").update_query_dict({"sslpassword": "canary-2"})
    with Registry(url.render_as_string(hide_password=False)) as registry:
        assert "canary" not in repr(registry)
        registry.upgrade()
        registry.close()
        execute(postgres_location, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
        with pytest.raises(RegistryError) as caught:
            registry.runs()
    assert "canary" not in str(caught.value)
