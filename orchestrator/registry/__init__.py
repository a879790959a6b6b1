"""The SQL record of every run: what was asked, what happened, what came out. Exports load on first use (PEP 562).

registry.py        `Registry`, the way in; recorder.py: what a driver writes; records.py: what is handed out
runs/              what is written of a run while it works: its life, trials, measurements, data, costs
marks.py           what people add to runs: tags, flags, notes; place_tags.py: tags that the laboratory sets
queries/           the language of queries, and runs as tables
groups/            groups of runs that differ only in their seed: leaderboard and comparison
lineage.py         what was made of what
keeping/           trash, backups, merging
tracker_exports.py runs for other trackers
engines/           SQLite and PostgreSQL: opening, differences, quick writing, errors
tables.py          the tables and views
revisions.py       revisions of the tables, by the scripts in migrations/
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what the table says, for type checkers and editors
    from orchestrator.registry.records import AttemptRecord as AttemptRecord
    from orchestrator.registry.records import CheckpointRecord as CheckpointRecord
    from orchestrator.registry.records import ModelRecord as ModelRecord
    from orchestrator.registry.records import RunRecord as RunRecord
    from orchestrator.registry.registry import Registry as Registry

_EXPORTS = {
    "Registry": "orchestrator.registry.registry",
    "AttemptRecord": "orchestrator.registry.records",
    "CheckpointRecord": "orchestrator.registry.records",
    "ModelRecord": "orchestrator.registry.records",
    "RunRecord": "orchestrator.registry.records",
}
__all__ = ["AttemptRecord", "CheckpointRecord", "ModelRecord", "Registry", "RunRecord"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
