"""BERT with a head, a file for each.

Each has a padded interface, `forward` with Hugging Face's argument names, and a packed one for training at full speed.
"""

from bert_core.heads.multiple_choice import BertForMultipleChoice
from bert_core.heads.pretraining import BertForPreTraining
from bert_core.heads.question_answering import BertForQuestionAnswering
from bert_core.heads.sentence_embedding import BertForSentenceEmbedding
from bert_core.heads.sequence_classification import BertForSequenceClassification
from bert_core.heads.token_classification import BertForTokenClassification

__all__ = [
    "BertForMultipleChoice",
    "BertForPreTraining",
    "BertForQuestionAnswering",
    "BertForSentenceEmbedding",
    "BertForSequenceClassification",
    "BertForTokenClassification",
]
