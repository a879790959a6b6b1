"""The rooms of the code as a drawing in text: floors, from the roof down, and how many arrows lead where.

A room is a package or a module directly inside `orchestrator`; `bert_core` is one room, and `python -m orchestrator` is
the command line. An arrow is that one room imports another, imports inside functions included; a floor is one above
the highest room that a room imports.

    python -m tests.contracts.structure [ROOT OF ANOTHER CHECKOUT]
"""

import sys
from graphlib import TopologicalSorter
from pathlib import Path

from tests.contracts import imports


def graph() -> dict[str, set[str]]:
    """Each room of `orchestrator`, and `bert_core`, with the rooms that it imports."""
    arrows: dict[str, set[str]] = {}
    modules = imports.source_files().keys() - {"orchestrator"}
    for module in modules:
        named = {found.module for found in imports.imports_of(module)} & modules
        arrows.setdefault(room_of(module), set()).update({room_of(other) for other in named} - {room_of(module)})
    return arrows


def room_of(module: str) -> str:
    """The room that a module lies in."""
    parts = module.split(".")
    room = parts[1] if parts[0] == "orchestrator" else parts[0]
    return "cli" if room == "__main__" else room


def floors(arrows: dict[str, set[str]]) -> dict[str, int]:
    """The floor of each room, 0 for those that import none."""
    found: dict[str, int] = {}
    for room in TopologicalSorter(arrows).static_order():
        found[room] = 1 + max((found[other] for other in arrows[room]), default=-1)
    return found


def draw() -> str:
    """The floors, one to a line, each room with the number of rooms that it imports and that import it."""
    arrows = graph()
    standing = floors(arrows)
    users = {room: sum(room in others for others in arrows.values()) for room in arrows}
    num_arrows = sum(map(len, arrows.values()))
    lines = [f"{len(arrows)} rooms, {max(standing.values()) + 1} floors, {num_arrows} arrows"]
    for floor in range(max(standing.values()), -1, -1):
        rooms = sorted(room for room in standing if standing[room] == floor)
        lines.append(f"{floor:>3}  " + "  ".join(f"{room} ({len(arrows[room])}↓ {users[room]}↑)" for room in rooms))
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        imports.ROOT = Path(sys.argv[1]).resolve()
    print(draw())
