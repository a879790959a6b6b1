"""Rules of tests: each asserts, none imports another test, none sleeps, none is impatient.

Alone: .venv/bin/pytest tests/contracts/test_test_files.py
"""

import ast
import re
from collections.abc import Iterator

from tests.contracts.imports import ROOT
from tests.waiting import PATIENCE_S

TREES = {
    str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"), str(path))
    for path in sorted((ROOT / "tests").rglob("*.py"))
}
MAY_SLEEP = {
    "tests/chaos/episode.py": "chance chooses a moment before there is anything to wait for",
    "tests/chaos/faults.py": "a fault lasts for a time",
    "tests/waiting.py": "another process gives no event to wait for",
}
"""Files that may sleep, with the reason."""

TRAINERS = {
    "tests.orchestrator.finetuning.tiny_distillation.Bench",
    "tests.orchestrator.finetuning.tiny_distillation.train_teacher",
    "tests.orchestrator.finetuning.bench.Bench",
    "tests.orchestrator.pretraining.small_run.run",
}
"""Helpers that train: tests that use them are marked, so that `make test-fast` stays fast."""


def calls_in(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Calls with the last part of the called name: `raises` for `pytest.raises(...)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func).rpartition(".")[2], node


def modules_imported(tree: ast.AST) -> Iterator[str]:
    """Dotted names imported; `from package import name` counts as `package.name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def asserts(test: ast.FunctionDef) -> bool:
    """Whether a test can fail by its own word: an assert, an expected error, or a helper named `assert_…`."""
    if any(isinstance(node, ast.Assert) for node in ast.walk(test)):
        return True
    return any(name in {"raises", "warns"} or name.startswith("assert_") for name, _ in calls_in(test))


def test_every_test_asserts() -> None:
    silent = [
        f"{file}:{node.lineno} {node.name}"
        for file, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not asserts(node)
    ]
    assert not silent, "nothing is asserted; assert what the test's name says"


def test_no_test_imports_another_test() -> None:
    """Shared code belongs into a helper module, fixtures into a conftest of a folder around all who use them."""
    wrong = [
        f"{file} imports {name}"
        for file, tree in TREES.items()
        for name in modules_imported(tree)
        if name.startswith("tests.") and re.search(r"\.(test_|conftest\b)", name)
    ]
    assert not wrong


def test_no_test_sleeps() -> None:
    sleeping = {file for file, tree in TREES.items() if any(name == "sleep" for name, _ in calls_in(tree))}
    assert sleeping == MAY_SLEEP.keys(), "wait for an event, stand in for the clock, or use tests.waiting.wait_until"


def test_no_test_gives_another_process_less_than_ten_minutes() -> None:
    impatient = [
        f"{file}:{call.lineno}"
        for file, tree in TREES.items()
        for _, call in calls_in(tree)
        for word in call.keywords
        if word.arg == "timeout" and isinstance(word.value, ast.Constant)
        if float(str(word.value.value)) < PATIENCE_S
    ]
    assert not impatient, "a busy machine is no failure; wait tests.waiting.PATIENCE_S"


def test_what_trains_is_marked() -> None:
    unmarked = [
        file
        for file, tree in TREES.items()
        if TRAINERS & set(modules_imported(tree)) and "pytest.mark.training" not in ast.unparse(tree)
        if file.rpartition("/")[2].startswith("test_")
    ]
    assert not unmarked, "mark it: pytestmark = pytest.mark.training"
