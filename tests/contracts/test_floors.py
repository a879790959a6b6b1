"""The floors of docs/architecture.md: every import leads from a room to one on a lower floor.

Alone: .venv/bin/pytest tests/contracts/test_floors.py
"""

import re

from tests.contracts.imports import ROOT, imports_of, source_files

TOP = "orchestrator"


def floors() -> dict[str, int]:
    """The floor of each room, as the table says."""
    found = {}
    for line in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").splitlines():
        row = re.match(r"\| (\d+) \| (.*?) \|", line)
        for room in re.findall(r"`(\w+)`", row.group(2)) if row else ():
            found[room] = int(row.group(1)) if row else 0
    return found


def room_of(module: str) -> str | None:
    """The room that a module lies in; none for what is no part of the project."""
    parts = module.split(".")
    if parts[0] == TOP and len(parts) > 1:
        return parts[1]
    return "bert_core" if parts[0] == "bert_core" else None


def test_every_room_has_its_floor() -> None:
    rooms = {room_of(module) for module in source_files()} - {None}
    assert rooms == floors().keys() - {"TEXT_HALF"}


def test_imports_lead_down() -> None:
    floor = floors()
    upward = []
    for module in source_files():
        room = room_of(module)
        for imported in imports_of(module) if room else ():
            other = room_of(imported.module)
            if room and other and other != room and floor[other] >= floor[room]:
                upward.append(f"{module} ({floor[room]}) → {imported.module} ({floor[other]})")
    assert not upward
