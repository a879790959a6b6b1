"""Sentence embeddings: objectives, two windows for each pair, labels, predictions of the type that judges.

Alone: pytest tests/orchestrator/tasks/types/test_embedding.py
"""

from typing import Any, get_args

import numpy as np
import pytest

from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import SpecError
from orchestrator.specs import TaskSpec
from orchestrator.specs.task import EmbeddingObjectiveName
from orchestrator.tasks import TASK_TYPES, decode
from orchestrator.tasks.types.classification import ClassificationExample, ClassPrediction
from orchestrator.tasks.types.embedding_objectives import EMBEDDING_OBJECTIVES
from orchestrator.tasks.types.pair_tables import MatchExample
from orchestrator.tasks.types.regression import RegressionExample, ValuePrediction
from orchestrator.tasks.types.retrieval import RankingPrediction
from tests.orchestrator.tasks.definitions import define, features_of


def test_a_pair_is_two_windows_with_one_label(tokenizer: Tokenizer) -> None:
    scored = [RegressionExample("0", "the house", "a river", value=0.5), RegressionExample("1", "the", "engine")]
    features = features_of("embedding", (), scored, tokenizer, max_seq_length=8, objective="cosine")
    assert features.example_index.tolist() == [0, 0, 1, 1]
    assert features.group_starts.tolist() == [0, 2, 4]
    np.testing.assert_array_equal(features.head_arrays.labels, np.array([0.5, np.nan], np.float32))
    classes = [ClassificationExample("0", "the house", "a river", label="same")]
    features = features_of(
        "embedding", ("other", "same"), classes, tokenizer, max_seq_length=8, objective="classification"
    )
    assert features.head_arrays.labels.tolist() == [1]


def test_outputs_are_decoded_as_the_judging_type_does(tokenizer: Tokenizer) -> None:
    examples = [MatchExample("a", "the house", "a river"), MatchExample("b", "an engine", "the mill")]
    features = features_of("embedding", (), examples, tokenizer, max_seq_length=8, objective="in_batch_negatives")
    partners = define("embedding", objective="in_batch_negatives")
    rankings = decode(partners, features, examples, np.array([[1, 0], [0, 1]]))
    assert rankings == [RankingPrediction(("b", "a")), RankingPrediction(("a", "b"))]
    cosines = define("embedding", objective="cosine")
    assert decode(cosines, features, examples, np.array([0.25, -1.0])) == [ValuePrediction(0.25), ValuePrediction(-1.0)]
    classes = define("embedding", ("other", "same"), objective="classification")
    first, _ = decode(classes, features, examples, np.array([[-900.0, 900.0], [0.0, 0.0]]))
    assert first == ClassPrediction("same", (0.0, 1.0))


def test_every_name_of_a_spec_has_an_objective() -> None:
    assert EMBEDDING_OBJECTIVES.keys() == set(get_args(EmbeddingObjectiveName))


@pytest.mark.parametrize("name", EMBEDDING_OBJECTIVES)
def test_recipe_fields_of_an_objective_are_refused_by_the_others(name: EmbeddingObjectiveName) -> None:
    embedding = TASK_TYPES["embedding"]
    refused = embedding.refused_recipe_fields(name)
    for other in EMBEDDING_OBJECTIVES.values():
        assert other.recipe_fields <= embedding.recipe_fields
        assert (other.recipe_fields & refused.keys() == other.recipe_fields) == (
            other.name != name or not other.recipe_fields
        )


@pytest.mark.parametrize(
    ("name", "fields", "complaint"),
    [
        ("cosine", {}, r"task\.score_range: objective cosine needs"),
        ("cosine", {"score_range": (5.0, 1.0)}, r"task\.score_range \[5\.0, 1\.0\]: the least score comes first"),
        ("in_batch_negatives", {"score_range": (0.0, 1.0)}, r"task\.score_range: pairs have no score"),
        ("in_batch_negatives", {"label_column": "class"}, r"task\.label_column: .* have no label; leave it out"),
        ("classification", {"score_range": (0.0, 1.0)}, r"task\.score_range: pairs have no score"),
    ],
)
def test_a_spec_that_does_not_fit_the_objective_is_refused(
    name: EmbeddingObjectiveName, fields: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(SpecError, match=complaint):
        EMBEDDING_OBJECTIVES[name].check_spec(TaskSpec(id="mine", **fields))
