"""Space that files take. Alone: pytest tests/orchestrator/storage/test_free_space.py"""

from pathlib import Path

from orchestrator.storage.free_space import file_stats, used_bytes


def test_a_folder_takes_what_its_files_take(tmp_path: Path) -> None:
    for name in ("a", "deep/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"123")
    assert [used_bytes(str(tmp_path / name)) for name in ("", "a", "absent")] == [6, 3, 0]


def test_files_that_vanish_while_they_are_counted_are_skipped(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"1")
    stats = file_stats(tmp_path)
    sizes = [next(stats).st_size]
    for file in tmp_path.iterdir():
        file.unlink()
    assert sizes + [each.st_size for each in stats] == [1]
