"""The SQL record of every run: what was asked, what happened, what came out. `Registry` loads on first use (PEP 562).

the way in         registry (`Registry`), records (what it returns)
a run at work      recorder (what a driver writes), lifecycle, trials, run_results, parameters
questions          query_language (the parser), fields, selection, run_grouping, recorded_names
groups of seeds    group_records, roll_up, leaderboard, group_comparison, model_origins (which scores are refused)
models and data    registered_models, lineage (what was made of what)
people             marks (tags, flags, notes, the trash)
the whole          backups, merging
the database       tables (read this first), dialects (what SQLite and PostgreSQL write differently), location,
                   connections (engines, quick writing), database (revisions, errors, patience), migrations/
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what the table says, for type checkers and editors
    from orchestrator.registry.registry import Registry as Registry

_EXPORTS = {"Registry": "orchestrator.registry.registry"}
__all__ = ["Registry"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
