"""Labeled tasks: files to examples, examples to token arrays, a model's outputs to predictions and scores."""

from orchestrator.tasks.decoding import Outputs, best_null_threshold, decode, with_null_threshold
from orchestrator.tasks.examples import (
    Answer,
    ClassificationExample,
    Example,
    MultiLabelExample,
    MultipleChoiceExample,
    NerExample,
    QaExample,
    QueryExample,
    RegressionExample,
)
from orchestrator.tasks.feature_cache import dataset_result, keep_features, prepare_features
from orchestrator.tasks.features import Features, build_features, join_features
from orchestrator.tasks.predictions import (
    AnswerPrediction,
    ChoicePrediction,
    ClassPrediction,
    LabelsPrediction,
    Prediction,
    RankingPrediction,
    TagsPrediction,
    ValuePrediction,
)
from orchestrator.tasks.scores import majority_baseline, prediction_rows, score, write_prediction_rows
from orchestrator.tasks.tabular_columns import TabularColumns
from orchestrator.tasks.task import Task
from orchestrator.tasks.task_loading import load_task

__all__ = [
    "Answer",
    "AnswerPrediction",
    "ChoicePrediction",
    "ClassPrediction",
    "ClassificationExample",
    "Example",
    "Features",
    "LabelsPrediction",
    "MultiLabelExample",
    "MultipleChoiceExample",
    "NerExample",
    "Outputs",
    "Prediction",
    "QaExample",
    "QueryExample",
    "RankingPrediction",
    "RegressionExample",
    "TabularColumns",
    "TagsPrediction",
    "Task",
    "ValuePrediction",
    "best_null_threshold",
    "build_features",
    "dataset_result",
    "decode",
    "join_features",
    "keep_features",
    "load_task",
    "majority_baseline",
    "prediction_rows",
    "prepare_features",
    "score",
    "with_null_threshold",
    "write_prediction_rows",
]
