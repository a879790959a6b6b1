"""BERT itself: model, heads, objectives, metrics. Exports load on first use (PEP 562): text tools need no torch."""

import logging
from importlib import import_module
from typing import Any

_EXPORTS = {
    "BertConfig": "bert_core.config",
    "BertModel": "bert_core.model",
    "BertForPreTraining": "bert_core.heads",
    "BertForSequenceClassification": "bert_core.heads",
    "BertForMultipleChoice": "bert_core.heads",
    "BertForTokenClassification": "bert_core.heads",
    "BertForQuestionAnswering": "bert_core.heads",
    "BertForSentenceEmbedding": "bert_core.heads",
}
__all__ = list(_EXPORTS)

logging.getLogger(__name__).addHandler(logging.NullHandler())  # who imports this decides what to show


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
