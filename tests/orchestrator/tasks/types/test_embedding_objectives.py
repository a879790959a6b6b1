"""Embedding objectives, torch-free half: the list, what each asks of a spec and of a recipe, the labels that it makes.

Alone: pytest tests/orchestrator/tasks/types/test_embedding_objectives.py
"""

from typing import Any, get_args

import numpy as np
import pytest

from orchestrator.errors import SpecError
from orchestrator.specs import TaskSpec
from orchestrator.specs.task import EmbeddingObjectiveName
from orchestrator.tasks import TASK_TYPES
from orchestrator.tasks.text_windows import TextWindows
from orchestrator.tasks.types.embedding_objectives import EMBEDDING_OBJECTIVES
from orchestrator.tasks.types.pair_tables import MatchExample
from tests.orchestrator.tasks.definitions import define


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


def test_partners_are_labeled_by_the_tokens_of_their_texts() -> None:
    ids, lengths = [1, 5, 2, 1, 6, 2, 1, 6, 2, 1, 7, 8, 2], [3, 3, 3, 4]
    windows = TextWindows(
        np.array(ids, np.int32), np.zeros(13, np.int8), np.cumsum([0, *lengths]), np.zeros(4, np.bool_)
    )
    examples = [MatchExample("0", "a", "b"), MatchExample("1", "b", "c d")]
    partners = EMBEDDING_OBJECTIVES["in_batch_negatives"]
    assert partners.labels(define("embedding"), examples, windows).tolist() == [[0, 1], [1, 2]]
