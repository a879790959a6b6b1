"""BERT itself: model, heads, objectives, metrics. Exports load on first use (PEP 562): text tools need no torch."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bert_core.heads import HEAD_MODULES

__version__ = "0.1.0"
"""Version of the distribution that holds `bert_core` and `orchestrator`; pyproject.toml reads it from here."""

if TYPE_CHECKING:  # what the table says, for type checkers and editors
    from bert_core.config import BertConfig as BertConfig
    from bert_core.heads import BertForMultipleChoice as BertForMultipleChoice
    from bert_core.heads import BertForPreTraining as BertForPreTraining
    from bert_core.heads import BertForQuestionAnswering as BertForQuestionAnswering
    from bert_core.heads import BertForSentenceEmbedding as BertForSentenceEmbedding
    from bert_core.heads import BertForSequenceClassification as BertForSequenceClassification
    from bert_core.heads import BertForTokenClassification as BertForTokenClassification
    from bert_core.model import BertModel as BertModel

_EXPORTS = {"BertConfig": "bert_core.config", "BertModel": "bert_core.model", **HEAD_MODULES}
__all__ = list(_EXPORTS)

logging.getLogger(__name__).addHandler(logging.NullHandler())  # who imports this decides what to show


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
