"""Rules of files: one subject each, and none so small that a thought is spread over its siblings.

Alone: .venv/bin/pytest tests/contracts/test_source_files.py
"""

from tests.contracts.imports import imports_of, source_files

MAX_LINES = 450
SMALL_LINES = 60
MAX_SMALL_FILES = 4
"""Small files with one importer that were there when the rule came; the number falls with each that is folded."""


def num_lines(module: str) -> int:
    return len(source_files()[module].read_text(encoding="utf-8").splitlines())


def importers() -> dict[str, set[str]]:
    """Each module with the others that import it, imports inside functions included."""
    users: dict[str, set[str]] = {module: set() for module in source_files()}
    for module in users:
        for imported in imports_of(module):
            if imported.module in users and imported.module != module:
                users[imported.module].add(module)
    return users


def test_files_are_read_in_one_sitting() -> None:
    assert not [f"{module}: {num_lines(module)}" for module in source_files() if num_lines(module) > MAX_LINES]


def test_small_files_with_one_importer_become_fewer() -> None:
    """A package's `__init__`, and a contract's implementations that a list names, are no pieces of another file."""
    small = [
        module
        for module, users in importers().items()
        if len(users) == 1 and num_lines(module) <= SMALL_LINES and source_files()[module].name != "__init__.py"
        if next(iter(users)) != module.rpartition(".")[0]
    ]
    assert len(small) <= MAX_SMALL_FILES, f"fold {small[-1].replace('.', '/')}.py, or another, into its importer"
