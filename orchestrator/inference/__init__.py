"""Models at work: lines of text answered by a model, here or by workers of Ray Data.

`predict` and `embed` are the way in from Python; they load on first use (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what the table says, for type checkers and editors
    from orchestrator.inference.embedder import embed as embed
    from orchestrator.inference.predictor import predict as predict

_EXPORTS = {"embed": "orchestrator.inference.embedder", "predict": "orchestrator.inference.predictor"}
__all__ = ["embed", "predict"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
