"""BERT with a head: one file for each. Those that `bert_core` exports by name are listed here and nowhere else.

Each model has a padded interface, `forward` with Hugging Face's argument names, and a packed one for training at full
speed. The classes load on first use (PEP 562), so that `bert_core` can name them without loading torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what the table says, for type checkers and editors
    from bert_core.heads.pretraining import BertForPreTraining as BertForPreTraining
    from bert_core.heads.question_answering import BertForQuestionAnswering as BertForQuestionAnswering
    from bert_core.heads.sentence_embedding import BertForSentenceEmbedding as BertForSentenceEmbedding
    from bert_core.heads.sequence_classification import BertForMultipleChoice as BertForMultipleChoice
    from bert_core.heads.sequence_classification import BertForSequenceClassification as BertForSequenceClassification
    from bert_core.heads.token_classification import BertForTokenClassification as BertForTokenClassification

HEAD_MODULES = {
    "BertForMultipleChoice": "bert_core.heads.sequence_classification",
    "BertForPreTraining": "bert_core.heads.pretraining",
    "BertForQuestionAnswering": "bert_core.heads.question_answering",
    "BertForSentenceEmbedding": "bert_core.heads.sentence_embedding",
    "BertForSequenceClassification": "bert_core.heads.sequence_classification",
    "BertForTokenClassification": "bert_core.heads.token_classification",
}
"""Class of a model with a head → its module."""

__all__ = ["HEAD_MODULES", *HEAD_MODULES]


def __getattr__(name: str) -> Any:
    if name in HEAD_MODULES:
        return getattr(import_module(HEAD_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
