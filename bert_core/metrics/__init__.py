"""Scores as the official scripts count them; each is a fraction, not a percentage. Only numpy is needed."""

from bert_core.metrics.classification import (
    binary_metrics,
    class_scores,
    classification_metrics,
    confusion_matrix,
    glue_metric_names,
    glue_metrics,
    multi_label_metrics,
    regression_metrics,
)
from bert_core.metrics.retrieval import retrieval_metrics, retrieval_metrics_by_query
from bert_core.metrics.spans import answer_scores, ner_f1, ner_f1_by_type, squad_scores

__all__ = [
    "answer_scores",
    "binary_metrics",
    "class_scores",
    "classification_metrics",
    "confusion_matrix",
    "glue_metric_names",
    "glue_metrics",
    "multi_label_metrics",
    "ner_f1",
    "ner_f1_by_type",
    "regression_metrics",
    "retrieval_metrics",
    "retrieval_metrics_by_query",
    "squad_scores",
]
