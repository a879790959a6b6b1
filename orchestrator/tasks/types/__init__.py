"""The types of labeled tasks, torch-free: an object for each head that a task can have, a file for each object.

`base` has the contract, and what to write for a new type.
"""

from collections.abc import Mapping

from orchestrator.base.errors import SpecError
from orchestrator.specs.task import EmbeddingObjectiveName, Head
from orchestrator.tasks.types.base import AnyTaskType
from orchestrator.tasks.types.classification import Classification
from orchestrator.tasks.types.embedding import EMBEDDING_TYPES
from orchestrator.tasks.types.multi_label import MultiLabel
from orchestrator.tasks.types.multiple_choice import MultipleChoice
from orchestrator.tasks.types.ner import Ner, TokenClassification
from orchestrator.tasks.types.qa import QuestionAnswering
from orchestrator.tasks.types.regression import Regression
from orchestrator.tasks.types.retrieval import Retrieval
from orchestrator.tasks.types.sentence_selection import SentenceSelection

TYPES: tuple[AnyTaskType, ...] = (
    Classification(),
    MultiLabel(),
    MultipleChoice(),
    Regression(),
    Ner(),
    TokenClassification(),
    QuestionAnswering(),
    SentenceSelection(),
    *EMBEDDING_TYPES.values(),
    Retrieval(),
)
"""Every task type."""

TASK_TYPES: Mapping[Head, AnyTaskType] = {task_type.head: task_type for task_type in reversed(TYPES)}
"""The task type of each head; of embeddings the one that is compared by cosines."""


def find_type(head: Head, objective: EmbeddingObjectiveName | None) -> AnyTaskType:
    """The task type of a head, and of an objective where it has several. Raises: SpecError without the objective."""
    if TASK_TYPES[head].objective is None:
        return TASK_TYPES[head]
    if objective is None:
        listed = ", ".join(f"{some.objective} ({some.pairs})" for some in EMBEDDING_TYPES.values())
        raise SpecError(f"task.objective: say what vectors are compared by, one of {listed}")
    return EMBEDDING_TYPES[objective]
