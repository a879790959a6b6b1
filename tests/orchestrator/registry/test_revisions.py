"""Creating and upgrading the tables: from nothing, whole or not at all, and refusing what is not ours.

pytest tests/orchestrator/registry/test_revisions.py
"""

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, make_url, text

from orchestrator.errors import RegistryError
from orchestrator.registry import Registry
from orchestrator.registry.engines.dialects import open_engine
from orchestrator.registry.engines.foreign_tables import VERSION_TABLE
from orchestrator.registry.lineage.lineage_edges import LineageEdge, LineageNode
from orchestrator.registry.location import resolve_url
from orchestrator.registry.revisions import MIGRATIONS, NEWEST_REVISION, upgrade_schema
from orchestrator.registry.tables import BaseRow
from tests.orchestrator.registry.full_registries import fill
from tests.orchestrator.registry.samples import model_result, new_run


def execute(location: str, statement: str) -> None:
    engine = create_engine(resolve_url(location))
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def test_an_empty_database_gets_its_tables_when_first_used(registry: Registry) -> None:
    assert registry.current_revision() is None
    assert registry.runs().empty
    assert registry.current_revision() == NEWEST_REVISION
    assert registry.upgrade() == NEWEST_REVISION


def test_the_migrations_make_the_tables_that_the_code_maps(registry: Registry, location: str) -> None:
    registry.upgrade()
    engine = create_engine(resolve_url(location))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, BaseRow.metadata) == []
    engine.dispose()


def test_stages_of_before_get_the_tags_of_their_pipelines(tmp_path: Path) -> None:
    location = str(tmp_path / "registry.sqlite")
    engine = open_engine(resolve_url(location))
    upgrade_schema(engine, location, to="0007")
    engine.dispose()
    execute(location, "INSERT INTO experiments VALUES (1, 'a', 'f', '2026-11-01')")
    columns = "id, experiment_id, parent_id, kind, name, state, group_key, spec, attempt, created_at"
    for run_id, parent in (("'p'", "NULL"), ("'q'", "NULL"), ("'s'", "NULL"), ("'t'", "'s'")):
        values = f"{run_id}, 1, {parent}, 'sweep', 'a', 'STOPPED', 'g', '{{}}', 1, '2026-11-01'"
        execute(location, f"INSERT INTO runs ({columns}) VALUES ({values})")
    tags = "('p', 'paper'), ('p', 'pulled:head'), ('q', 'paper'), ('q', 'late'), ('s', 'late')"
    execute(location, f"INSERT INTO tags VALUES {tags}, ('s', 'pipeline:p'), ('s', 'pipeline:q')")
    with Registry(location) as registry:
        registry.upgrade()
        assert registry.tags("s") == ["late", "paper", "pipeline:p", "pipeline:q"]
        assert registry.tags("t") == ["late", "paper"]


def test_numbers_of_models_of_before_are_given_to_no_other(registry: Registry, location: str, tmp_path: Path) -> None:
    """Of a model that is registered, of one in the trash, and of one that the lineage alone remembers."""
    run_id, in_trash = new_run(registry), fill(registry)
    (other,) = registry.models.of_run(in_trash)
    registry.models.register("bert", model_result("a"))
    registry.models.register("bert", model_result("b"), run_id)
    examples = LineageNode("t", "task", "reviews")
    registry.lineage.record([LineageEdge(LineageNode("b", "model", "bert@2"), examples, "examples")])
    registry.models.remove_of([run_id])
    registry.trash.put(in_trash, 0)
    registry.close()
    execute(location, "DELETE FROM lineage WHERE child <> 'b'")
    execute(location, "DROP TABLE model_versions")
    execute(location, f"UPDATE {VERSION_TABLE} SET version_num = '0008'")
    registry.upgrade(tmp_path / "backups")
    assert registry.models.register("bert", model_result("c")) == 3
    assert registry.models.register("bert", model_result("b")) == 2
    assert registry.models.register(other.name, model_result("c")) == other.version + 1


def test_the_newest_script_is_the_newest_revision() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_heads() == [NEWEST_REVISION]


def test_the_scripts_are_loaded_before_other_writers_must_wait(tmp_path: Path) -> None:
    """In a process of its own: in this one they are loaded already."""
    program = (
        "import sys\n"
        "from orchestrator.registry import Registry, revisions\n"
        "def lock(connection, name): print('alembic.runtime.environment' in sys.modules)\n"
        "revisions.lock_until_commit = lock\n"
        "Registry(sys.argv[1]).upgrade()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "registry.sqlite")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"


def test_a_newer_schema_is_refused(registry: Registry, location: str) -> None:
    registry.upgrade()
    registry.close()
    execute(location, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    for use in (registry.runs, registry.upgrade):
        with pytest.raises(RegistryError, match="9999, newer than this version knows; upgrade bert-orchestrator"):
            use()


def test_a_database_of_something_else_is_left_alone(registry: Registry, location: str) -> None:
    if resolve_url(location).get_backend_name() == "sqlite":
        registry.current_revision()  # makes the folder
    execute(location, "CREATE TABLE runs (x integer)")
    for use in (registry.runs, registry.current_revision, registry.upgrade, lambda: new_run(registry)):
        with pytest.raises(RegistryError, match="another program's: it has a table 'runs' that is not the registry's"):
            use()


def test_a_sqlite_file_of_another_program_keeps_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    execute(str(path), "CREATE TABLE customers (name text)")
    before = path.read_bytes()
    for read_only in (False, True):
        with (
            Registry(str(path), read_only=read_only) as registry,
            pytest.raises(RegistryError, match="another program's: it has a table 'customers'"),
        ):
            registry.open()
    assert [*tmp_path.iterdir()] == [path]
    assert path.read_bytes() == before


def test_an_upgrade_that_breaks_off_leaves_nothing_behind(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    from alembic.op import create_index

    def broken(name: str, *arguments: object, **options: object) -> None:
        if name == "ix_tags_tag":  # the last one
            raise RuntimeError("power cut")
        create_index(name, *arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr("alembic.op.create_index", broken)
        with pytest.raises(RuntimeError, match="power cut"):
            registry.upgrade()
    assert registry.current_revision() is None
    assert new_run(registry)


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
