"""The types of labeled tasks, torch-free: an object for each head that a task can have, a file for each object.

The contract is `base.TaskType`. A new head adds a file here and its line in the list, and likewise in
`orchestrator.finetuning.heads`, which trains it.
"""

from collections.abc import Mapping
from types import MappingProxyType

from orchestrator.specs.task import Head
from orchestrator.tasks.types.base import AnyTaskType
from orchestrator.tasks.types.classification import Classification
from orchestrator.tasks.types.embedding import Embedding
from orchestrator.tasks.types.multi_label import MultiLabel
from orchestrator.tasks.types.multiple_choice import MultipleChoice
from orchestrator.tasks.types.ner import Ner, TokenClassification
from orchestrator.tasks.types.qa import QuestionAnswering
from orchestrator.tasks.types.regression import Regression
from orchestrator.tasks.types.retrieval import Retrieval
from orchestrator.tasks.types.sentence_selection import SentenceSelection

_TYPES: tuple[AnyTaskType, ...] = (
    Classification(),
    MultiLabel(),
    MultipleChoice(),
    Regression(),
    Ner(),
    TokenClassification(),
    QuestionAnswering(),
    SentenceSelection(),
    Embedding(),
    Retrieval(),
)

TASK_TYPES: Mapping[Head, AnyTaskType] = MappingProxyType({task_type.head: task_type for task_type in _TYPES})
"""Every task type by its head."""
