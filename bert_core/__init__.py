"""BERT itself: model, heads, objectives, metrics. Exports load on first use (PEP 562): text tools need no torch."""

import logging
from importlib import import_module
from typing import Any

from bert_core.heads import HEAD_MODULES

__version__ = "0.1.0"
"""Version of the distribution that holds `bert_core` and `orchestrator`; pyproject.toml reads it from here."""

_EXPORTS = {"BertConfig": "bert_core.config", "BertModel": "bert_core.model", **HEAD_MODULES}
__all__ = list(_EXPORTS)

logging.getLogger(__name__).addHandler(logging.NullHandler())  # who imports this decides what to show


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
