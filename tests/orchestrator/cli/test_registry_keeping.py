"""`db backup`, `export`, `import`, `merge`, `upgrade`: what a person sees, and what is refused.

pytest tests/orchestrator/cli/test_registry_keeping.py
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.registry import Registry
from orchestrator.registry.engines.dialects import open_engine
from orchestrator.registry.location import resolve_url
from orchestrator.registry.revisions import NEWEST_REVISION, upgrade_schema
from tests.orchestrator.cli.laboratory import Command, RecordedSweep
from tests.orchestrator.registry.samples import new_run

OLD_REGISTRY = Path(__file__).parents[2] / "saved_before" / "registry_0001.sqlite"


def test_a_backup_is_a_registry_to_read(command: Command, recorded_sweep: RecordedSweep) -> None:
    outcome = command("db", "backup", "monday.sqlite")
    assert (outcome.status, outcome.out) == (0, "")
    assert "wrote monday.sqlite, " in outcome.err
    assert "read it with --registry monday.sqlite" in outcome.err
    assert recorded_sweep.run_id in command("runs", "list", "--registry", "monday.sqlite").out
    assert command("db", "backup", "monday.sqlite").status == 2
    assert command("db", "backup", "monday.sqlite", "--overwrite").status == 0


def test_an_export_is_imported_into_a_new_registry_and_joined_to_one_that_has_it(
    command: Command, recorded_sweep: RecordedSweep
) -> None:
    outcome = command("db", "export", ".")
    assert outcome.status == 0
    assert "wrote registry.jsonl.zst: " in outcome.err
    outcome = command("db", "import", "registry.jsonl.zst", "--registry", "new.sqlite")
    assert outcome.status == 0
    assert "was empty, and has everything now" in outcome.err
    assert recorded_sweep.run_id in command("runs", "list", "--registry", "new.sqlite").out
    outcome = command("db", "import", "registry.jsonl.zst")
    assert (outcome.status, outcome.out) == (0, "")
    assert "both have the same" in outcome.err


def test_a_database_of_another_program_is_neither_filled_nor_read(
    command: Command, recorded_sweep: RecordedSweep, tmp_path: Path
) -> None:
    assert command("db", "export", "registry.jsonl").status == 0
    with closing(sqlite3.connect(tmp_path / "shop.sqlite")) as shop:
        shop.execute("CREATE TABLE customers (name text)")
    before = (tmp_path / "shop.sqlite").read_bytes()
    for words in (
        ("db", "import", "registry.jsonl"),
        ("db", "import", "registry.jsonl", "--dry-run"),
        ("db", "upgrade"),
        ("db", "current"),
        ("db", "backup", "copy.sqlite"),
        ("runs", "list"),
    ):
        outcome = command("--registry", "shop.sqlite", *words)
        assert outcome.status == 4, words
        assert "shop.sqlite is another program's: it has a table 'customers'" in outcome.err, words
    outcome = command("db", "merge", "shop.sqlite")
    assert (outcome.status, "another program's" in outcome.err) == (4, True)
    assert (tmp_path / "shop.sqlite").read_bytes() == before
    assert [path.name for path in tmp_path.glob("shop*")] == ["shop.sqlite"]


def test_a_board_is_not_opened_on_a_registry_of_a_newer_version(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Registry(str(tmp_path / "newer.sqlite")) as registry:
        registry.open()
    with closing(sqlite3.connect(tmp_path / "newer.sqlite")) as database, database:
        database.execute("UPDATE registry_revision SET version_num = '9999'")
    monkeypatch.setattr("orchestrator.web.server.serve_app", lambda *_: pytest.fail("it was served"))
    outcome = command("board", "--port", "0", "--registry", "newer.sqlite")
    assert outcome.status == 4
    assert "newer than this version knows; upgrade bert-orchestrator" in outcome.err


def test_a_merge_names_what_came_and_what_could_not(
    command: Command, recorded_sweep: RecordedSweep, tmp_path: Path
) -> None:
    with Registry(str(tmp_path / "other.sqlite")) as other:
        new_run(other, run_id=recorded_sweep.run_id, name="a stranger")
        new_run(other, run_id="c" * 12, name="at work")
    outcome = command("db", "merge", "other.sqlite", "--dry-run", "-f", "json")
    rows = {row["name"]: row for row in json.loads(outcome.out)}
    assert outcome.status == 1
    assert rows["a stranger"]["change"] == "conflict"
    assert "here it is sweep first" in rows["a stranger"]["remark"]
    assert rows["at work"]["change"] == "unfinished"
    assert "would be: 1 not ended there" in outcome.err
    assert command("runs", "show", "cccc").status == 3
    outcome = command("db", "merge", "other.sqlite", "--unfinished")
    assert outcome.status == 1
    assert "1 new, 1 in conflict, left as they are here" in outcome.err
    assert command("runs", "show", "cccc").status == 0


@pytest.mark.parametrize("verb", ["backup", "export", "merge", "import"])
def test_what_is_not_there_is_told_and_not_made(
    command: Command, recorded_sweep: RecordedSweep, tmp_path: Path, verb: str
) -> None:
    if verb in ("backup", "export"):
        outcome = command("db", verb, "made", "--registry", "typo.sqlite")
    else:
        outcome = command("db", verb, "typo.sqlite")
    assert outcome.status in (2, 4)
    assert "typo.sqlite" in outcome.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


@pytest.mark.parametrize("verb", ["current", "upgrade"])
def test_a_mistyped_registry_is_told_and_not_made(command: Command, home: Path, tmp_path: Path, verb: str) -> None:
    outcome = command("db", verb, "--registry", "typo.sqlite")
    assert outcome.status == 4
    assert "There is no registry at" in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_a_registry_is_not_joined_to_itself(command: Command, recorded_sweep: RecordedSweep) -> None:
    outcome = command("db", "merge", "home/registry.sqlite")
    assert outcome.status == 2
    assert "is the registry itself" in outcome.err


@pytest.mark.parametrize("verb", [("db", "merge"), ("db", "import")])
@pytest.mark.parametrize("content", [b"my notes\n" * 100, b"", b"\x1f\x8bgarbage", b'{"foo": 1}\n'])
def test_garbage_is_refused_and_changes_nothing(
    command: Command, recorded_sweep: RecordedSweep, tmp_path: Path, verb: tuple[str, str], content: bytes
) -> None:
    (tmp_path / "garbage").write_bytes(content)
    before = command("runs", "list", "-f", "json").out
    outcome = command(*verb, "garbage")
    assert outcome.status in (2, 4)
    assert "garbage" in outcome.err
    assert "unexpected" not in outcome.err
    assert command("runs", "list", "-f", "json").out == before
    assert (tmp_path / "garbage").read_bytes() == content


def test_an_upgrade_says_where_the_registry_of_before_is(command: Command, home: Path) -> None:
    home.mkdir()
    shutil.copy(OLD_REGISTRY, home / "registry.sqlite")
    outcome = command("runs", "list")
    assert outcome.status == 4
    assert "is at an older revision (0001)" in outcome.err
    assert "orchestrator db upgrade" in outcome.err
    outcome = command("db", "upgrade")
    assert (outcome.status, outcome.out) == (0, f"{NEWEST_REVISION}\n")
    assert "is kept in" in outcome.err
    assert command("runs", "list").status == 0


@pytest.mark.postgres
@pytest.mark.skipif(shutil.which("pg_dump") is None, reason="pg_dump is not on this machine")
def test_an_upgrade_of_a_servers_registry_keeps_a_dump_in_the_home(
    command: Command, home: Path, postgres_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(resolve_url(postgres_location))
    upgrade_schema(engine, postgres_location, to="0001")
    engine.dispose()
    with monkeypatch.context() as patched:
        patched.setenv("PATH", "")
        refused = command("db", "upgrade", "--registry", postgres_location)
    assert (refused.status, refused.out) == (4, "")
    assert "stays at revision 0001: pg_dump, which makes its backup, is not on this machine" in refused.err
    outcome = command("db", "upgrade", "--registry", postgres_location)
    assert (outcome.status, outcome.out) == (0, f"{NEWEST_REVISION}\n")
    (kept,) = (home / "backups").glob("*.0001-*.backup")
    assert f"is kept in {kept}" in outcome.err.replace("\n", " ")
    assert kept.read_bytes().startswith(b"PGDMP")
