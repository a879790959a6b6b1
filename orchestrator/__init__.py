"""The laboratory: specs in, trained models and honest numbers out. Exports load on first use (PEP 562)."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bert_core import __version__ as __version__

if TYPE_CHECKING:  # what the table says, for type checkers and editors
    from orchestrator.execution.runner import run as run
    from orchestrator.registry import Registry as Registry

_EXPORTS = {"Registry": "orchestrator.registry", "run": "orchestrator.execution.runner"}
__all__ = ["Registry", "run"]

logging.getLogger(__name__).addHandler(logging.NullHandler())  # who imports this decides what to show


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
