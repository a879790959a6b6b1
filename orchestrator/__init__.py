"""The laboratory: specs in, trained models and honest numbers out. Exports load on first use (PEP 562)."""

from importlib import import_module
from typing import Any

from bert_core import __version__ as __version__

_EXPORTS = {"Registry": "orchestrator.registry", "run": "orchestrator.execution.runner"}
__all__ = ["Registry", "run"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
