"""The SQL record of every run: what was asked, what happened, what came out. Exports load on first use (PEP 562)."""

from importlib import import_module
from typing import Any

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
