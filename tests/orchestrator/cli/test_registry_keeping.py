"""`db backup`, `check`, `merge`, `upgrade`: what a person sees, and what is refused.

pytest tests/orchestrator/cli/test_registry_keeping.py
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.base.settings import Settings
from orchestrator.registry import Registry
from tests.orchestrator.cli.laboratory import Command, RecordedSweep
from tests.orchestrator.registry.samples import new_run


def test_a_backup_is_a_registry_to_read(command: Command, recorded_sweep: RecordedSweep) -> None:
    outcome = command("db", "backup", "monday.sqlite")
    assert (outcome.status, outcome.out) == (0, "")
    assert "wrote monday.sqlite, " in outcome.err
    assert "read it with --registry monday.sqlite" in outcome.err
    assert recorded_sweep.run_id in command("runs", "list", "--registry", "monday.sqlite").out
    assert command("db", "backup", "monday.sqlite").status == 2
    assert command("db", "backup", "monday.sqlite", "--overwrite").status == 0


def test_numbers_of_groups_that_do_not_follow_from_the_runs_are_told_and_mended(
    command: Command, recorded_sweep: RecordedSweep
) -> None:
    assert command("db", "check").status == 0
    with closing(sqlite3.connect(Settings.from_options().registry.removeprefix("sqlite:///"))) as registry:
        registry.execute("DELETE FROM ranked_groups")
        registry.commit()
    outcome = command("db", "check")
    assert (outcome.status, "orchestrator db check --mend" in outcome.err) == (4, True)
    assert [command("db", "check", *words).status for words in ((), ("--mend",), ())] == [4, 0, 0]


def test_a_database_of_another_program_is_neither_filled_nor_read(
    command: Command, recorded_sweep: RecordedSweep, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.sqlite")) as shop:
        shop.execute("CREATE TABLE customers (name text)")
    before = (tmp_path / "shop.sqlite").read_bytes()
    for words in (
        ("db", "upgrade"),
        ("db", "check"),
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
    monkeypatch.setattr("orchestrator.base.web.serve_app", lambda *_: pytest.fail("it was served"))
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
    assert rows["at work"]["change"] == "unfinished"
    assert "would be: 1 not ended there" in outcome.err
    assert command("runs", "show", "cccc").status == 3
    outcome = command("db", "merge", "other.sqlite", "--unfinished")
    assert outcome.status == 1
    assert "1 new, 1 in conflict, left as they are here" in outcome.err
    assert command("runs", "show", "cccc").status == 0


@pytest.mark.parametrize("verb", ["backup", "merge"])
def test_what_is_not_there_is_told_and_not_made(
    command: Command, recorded_sweep: RecordedSweep, tmp_path: Path, verb: str
) -> None:
    if verb == "backup":
        outcome = command("db", verb, "made", "--registry", "typo.sqlite")
    else:
        outcome = command("db", verb, "typo.sqlite")
    assert outcome.status in (2, 4)
    assert "typo.sqlite" in outcome.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


@pytest.mark.parametrize("content", [b"my notes\n" * 100, b""])
def test_garbage_is_refused_and_changes_nothing(
    command: Command, recorded_sweep: RecordedSweep, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "garbage").write_bytes(content)
    before = command("runs", "list", "-f", "json").out
    outcome = command("db", "merge", "garbage")
    assert outcome.status in (2, 4)
    assert "garbage" in outcome.err
    assert "unexpected" not in outcome.err
    assert command("runs", "list", "-f", "json").out == before
    assert (tmp_path / "garbage").read_bytes() == content
