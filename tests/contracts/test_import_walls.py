"""The walls between the parts: who may import what, also through others.

Alone: .venv/bin/pytest tests/contracts/test_import_walls.py
"""

import sys

import pytest

from tests.contracts.imports import imports_of, is_part_of, reach, source_files
from tests.contracts.walls import NEVER, NEVER_AT_IMPORT, ONLY_INSIDE, ONLY_STANDARD_LIBRARY


def modules_of(part: str, table: dict[str, frozenset[str]]) -> list[str]:
    """The modules that a row of the table is about: those without a longer row of their own."""
    inner = [other for other in table if other != part and is_part_of(other, part)]
    return [m for m in source_files() if is_part_of(m, part) and not any(is_part_of(m, other) for other in inner)]


@pytest.mark.parametrize("part", NEVER)
def test_a_part_never_reaches_what_lies_behind_its_wall(part: str) -> None:
    for module in modules_of(part, NEVER):
        for name, way in reach(module).items():
            for forbidden in NEVER[part]:
                assert not is_part_of(name, forbidden), f"{part} must not reach {forbidden}: {' → '.join(way)}"


@pytest.mark.parametrize("part", NEVER_AT_IMPORT)
def test_a_light_part_loads_nothing_heavy_when_imported(part: str) -> None:
    for module in (m for m in source_files() if is_part_of(m, part)):
        for name, way in reach(module, at_import_only=True).items():
            for forbidden in NEVER_AT_IMPORT[part]:
                assert not is_part_of(name, forbidden), f"importing {part} loads {forbidden}: {' → '.join(way)}"


@pytest.mark.parametrize("module", ONLY_STANDARD_LIBRARY)
def test_a_plain_module_needs_the_standard_library_only(module: str) -> None:
    for imported in imports_of(module):
        is_plain = imported.module in ONLY_STANDARD_LIBRARY
        is_standard = imported.module.partition(".")[0] in sys.stdlib_module_names
        assert is_plain or is_standard, f"{module} imports {imported.module}"


@pytest.mark.parametrize("library", ONLY_INSIDE)
def test_a_library_stays_in_its_part(library: str) -> None:
    for module in source_files():
        if not any(is_part_of(module, part) for part in ONLY_INSIDE[library]):
            named = [found.module for found in imports_of(module) if is_part_of(found.module, library)]
            assert not named, f"{module} imports {named[0]}; {library} belongs into {', '.join(ONLY_INSIDE[library])}"


def test_every_part_has_a_row() -> None:
    """A new folder or module of a package says what it must never reach."""
    parts = {".".join(module.split(".")[:2]) for module in source_files()}
    assert parts - NEVER.keys() - set(ONLY_STANDARD_LIBRARY) == {"orchestrator"}, "give the new part a row in walls.py"


def test_every_part_of_the_table_exists() -> None:
    for part in (*NEVER, *NEVER_AT_IMPORT, *ONLY_STANDARD_LIBRARY):
        assert part in source_files(), f"{part} stands in the table of walls and nowhere else"


def test_the_graph_sees_what_a_package_loads_on_first_use() -> None:
    assert "torch" not in reach("bert_core.heads")
    assert "bert_core.heads.pretraining" in reach("orchestrator.pretraining.step")


def test_the_graph_sees_imports_inside_functions() -> None:
    assert "ray" in reach("orchestrator.cluster.connection")
    assert "ray" not in reach("orchestrator.cluster.connection", at_import_only=True)
