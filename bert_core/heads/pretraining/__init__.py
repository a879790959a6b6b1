"""BERT with its pretraining heads: the model, and one file for each objective's head."""

from bert_core.heads.pretraining.base import LossSums, PretrainingLabels
from bert_core.heads.pretraining.model import BertForPreTraining

__all__ = ["BertForPreTraining", "LossSums", "PretrainingLabels"]
