"""The heads in training: an object for each task type that models are fine-tuned for.

The contract is `base.HeadTraining`; `orchestrator.tasks.types.base` says what else a new head needs.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from bert_core.heads import (
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from bert_core.heads.sentence_selection import BertForSentenceSelection
from orchestrator.finetuning.heads.base import Batch, HeadTraining
from orchestrator.finetuning.heads.embedding import DualEncoder, EmbeddingHead
from orchestrator.finetuning.heads.sequence import (
    ClassificationHead,
    MultiLabelHead,
    MultipleChoiceHead,
    RegressionHead,
)
from orchestrator.finetuning.heads.tokens import (
    NerHead,
    QuestionAnsweringHead,
    SentenceSelectionHead,
    TokenClassificationHead,
)
from orchestrator.specs.task import Head

__all__ = ["HEADS", "Batch", "HeadModel", "HeadTraining"]

HeadModel: TypeAlias = (
    BertForSequenceClassification
    | BertForMultipleChoice
    | BertForTokenClassification
    | BertForQuestionAnswering
    | BertForSentenceSelection
    | DualEncoder
)
"""A model with any of the heads."""

HEADS: Mapping[Head, HeadTraining[Any, Any]] = {
    "classification": ClassificationHead(),
    "multi_label": MultiLabelHead(),
    "multiple_choice": MultipleChoiceHead(),
    "regression": RegressionHead(),
    "ner": NerHead(),
    "token_classification": TokenClassificationHead(),
    "qa": QuestionAnsweringHead(),
    "sentence_selection": SentenceSelectionHead(),
    "embedding": EmbeddingHead(),
}
"""Every head that models are fine-tuned for. The order tells which head a folder made elsewhere has, where two fit."""
