"""No two parts need each other: the rooms of the packages make no ring, nor do their files; and the house stays small.

Imports inside functions count; those for the type checker alone do not. Alone: .venv/bin/pytest
tests/contracts/test_rings.py
"""

from collections.abc import Mapping, Set
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.contracts import structure
from tests.contracts.imports import PACKAGES, imports_of, source_files

MAX_ROOMS, MAX_FLOORS, MAX_ARROWS = 20, 8, 115


def room_of(module: str) -> str:
    """A folder or a single module directly inside one of the packages."""
    return ".".join(module.split(".")[:2])


def file_graph() -> dict[str, set[str]]:
    """Each module with those that it names; the packages themselves, whose exports are loaded when asked, left out."""
    modules = source_files().keys() - set(PACKAGES)
    return {module: {found.module for found in imports_of(module)} & modules - {module} for module in modules}


def room_graph() -> dict[str, set[str]]:
    """Each room with those that its modules name."""
    graph: dict[str, set[str]] = {}
    for module, named in file_graph().items():
        room = room_of(module)
        graph.setdefault(room, set()).update({room_of(other) for other in named} - {room})
    return graph


def find_ring(graph: Mapping[str, Set[str]]) -> list[str]:
    """A way from one node of the graph back to itself; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        ring: list[str] = error.args[1]
        return ring[::-1]
    return []


def test_rooms_make_no_ring() -> None:
    assert not find_ring(room_graph()), "move what both need into a room below them"


def test_files_make_no_ring() -> None:
    assert not find_ring(file_graph()), "move what both need into a file of its own"


def test_a_ring_is_found() -> None:
    ring = find_ring({"a": {"b"}, "b": {"c"}, "c": {"b"}})
    assert set(ring) == {"b", "c"}


@pytest.mark.parametrize("package", PACKAGES)
def test_rooms_are_seen(package: str) -> None:
    assert any(room.startswith(f"{package}.") and named for room, named in room_graph().items())


def test_the_house_fits_in_a_head() -> None:
    arrows = structure.graph()
    sizes = len(arrows), 1 + max(structure.floors(arrows).values()), sum(map(len, arrows.values()))
    most = (MAX_ROOMS, MAX_FLOORS, MAX_ARROWS)
    assert all(size <= limit for size, limit in zip(sizes, most, strict=True)), structure.draw()
