"""The portable form: every row comes back, the same bytes from every database, and what was changed is refused.

pytest tests/orchestrator/registry/keeping/test_portable_form.py
"""

import json
import shutil
from pathlib import Path

import pytest

from orchestrator.errors import InputError
from orchestrator.registry import Registry
from orchestrator.registry.database import Database
from orchestrator.registry.keeping.backups import export_registry
from orchestrator.registry.keeping.merging import fill_if_empty
from orchestrator.registry.keeping.other_registry import open_other
from orchestrator.registry.revisions import NEWEST_REVISION
from orchestrator.registry.tables import BaseRow
from tests.orchestrator.registry.full_registries import fill, fill_every_table
from tests.orchestrator.registry.samples import everything, new_run

OLD_REGISTRY = Path(__file__).parents[3] / "saved_before" / "registry_0001.sqlite"


def restore(path: Path, location: str) -> None:
    """Bring an export into an empty registry."""
    target = Database(location)
    with open_other(str(path)) as other:
        assert fill_if_empty(target, other)
    target.close()


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """An export without compression, of a registry with something in every table."""
    with Registry(str(tmp_path / "there.sqlite")) as there:
        fill_every_table(there)
    path = tmp_path / "there.jsonl"
    export_registry(str(tmp_path / "there.sqlite"), path)
    return path


def test_every_table_has_a_row_in_these_tests(registry: Registry) -> None:
    fill_every_table(registry)
    rows = everything(registry)
    assert [name for name in BaseRow.metadata.tables if not rows[name]] == []


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "jsonl.zst"])
def test_every_row_comes_back_from_every_database(
    registry: Registry, location: str, tmp_path: Path, ending: str
) -> None:
    fill_every_table(registry)
    path, back = tmp_path / f"all.{ending}", str(tmp_path / "back.sqlite")
    _, num_rows = export_registry(location, path)
    restore(path, back)
    with Registry(back) as restored:
        rows = everything(restored)
    assert rows == everything(registry)
    assert num_rows == sum(map(len, rows.values()))


@pytest.mark.postgres
def test_the_same_content_gives_the_same_bytes_from_both_databases(
    postgres_location: str, exported: Path, tmp_path: Path
) -> None:
    """And a server goes on numbering after what came with numbers."""
    restore(exported, postgres_location)
    again = tmp_path / "again.jsonl"
    export_registry(postgres_location, again)
    assert again.read_bytes() == exported.read_bytes()
    with Registry(postgres_location) as registry:
        assert new_run(registry, name="one more")


def test_numbers_of_one_database_alone_do_not_show(tmp_path: Path) -> None:
    for name, order in (("one", "ab"), ("other", "ba")):
        with Registry(str(tmp_path / name)) as registry:
            for letter in order:
                fill(registry, letter * 12)
        export_registry(str(tmp_path / name), tmp_path / f"{name}.jsonl")
    lines = [(tmp_path / f"{name}.jsonl").read_text("utf-8").split("\n") for name in ("one", "other")]
    runs = [[json.loads(line)[:3] for line in each if '"sweep"' in line] for each in lines]
    assert runs[0] == runs[1] != []


def test_an_export_at_an_older_revision_is_read_and_brought_up_to_date(tmp_path: Path) -> None:
    shutil.copy(OLD_REGISTRY, tmp_path / "old.sqlite")
    export_registry(str(tmp_path / "old.sqlite"), tmp_path / "old.jsonl")
    assert json.loads((tmp_path / "old.jsonl").read_text("utf-8").split("\n")[0])["revision"] == "0001"
    restore(tmp_path / "old.jsonl", str(tmp_path / "new.sqlite"))
    with Registry(str(tmp_path / "new.sqlite")) as registry:
        assert registry.current_revision() == NEWEST_REVISION
        assert registry.num_runs() > 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text[: len(text) // 2], "too early"),
        (lambda text: text.rpartition('{"rows"')[0], "too early"),
        (lambda text: text.replace("tried", "tired"), "it was changed since it was written"),
        (lambda text: text.replace('"version":1', '"version":2'), "of version 2, .* newer than this version knows"),
        (lambda text: text.replace(f'"{NEWEST_REVISION}"', '"9999"'), "revision 9999, newer than this version knows"),
        (lambda text: text.replace("bert-orchestrator registry", "diary"), "is no registry in portable form"),
        (lambda text: text.replace('"table":"tags"', '"table":"cats"'), "table 'cats' is not as its revision has it"),
        (lambda text: text.replace("2026-11-01T", "yesterday"), "line \\d+: .*yesterday"),
        (lambda text: text.replace('["aaaaaaaaaaaa",', "[", 1), "line \\d+"),
        (lambda text: text.replace('{"table"', "{table", 1), "no JSON"),
    ],
)
def test_a_file_that_was_cut_or_changed_is_refused_with_the_line(exported: Path, change: object, says: str) -> None:
    exported.write_text(change(exported.read_text("utf-8")), "utf-8")  # type: ignore[operator]
    with pytest.raises(InputError, match=says), open_other(str(exported)):
        pass


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_compressed_file_that_was_cut_is_refused(exported: Path, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"cut.jsonl.{ending}"
    export_registry(str(tmp_path / "there.sqlite"), path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match=r"cut short|too early"), open_other(str(path)):
        pass
