"""A recipe against a task's type: fields that say nothing there are refused, so that none is set in vain."""

from collections.abc import Container

from bert_core.checkpoints.sentence_transformers import SentenceEmbeddingConfig
from orchestrator.errors import SpecError
from orchestrator.nearest import did_you_mean
from orchestrator.specs import RecipeSpec
from orchestrator.specs.task import Head
from orchestrator.tasks import TASK_TYPES, TaskDefinition


def check_recipe(recipe: RecipeSpec, task: TaskDefinition, axes: Container[str] = ()) -> None:
    """Check that a model can be fine-tuned for a task and that the task has a use for every field that was given.

    Args:
        axes: fields that a search varies.

    Raises: SpecError.
    """
    task_type = task.type
    if task_type.is_searched:
        raise SpecError(f"task.head: a {task.head} task is evaluated, not learned; learn pairs with head: embedding")
    refused = _fields_of_others(task.head) | dict(task_type.refused_recipe_fields(task.objective))
    for name, reason in refused.items():
        value = getattr(recipe, name)
        if name in axes or value != RecipeSpec.model_fields[name].default:
            section, given = ("space", "the axis") if name in axes else ("recipe", repr(value))
            raise SpecError(f"{section}.{name}: {reason}: leave {given} out")
    for label in recipe.class_weights if isinstance(recipe.class_weights, dict) else ():
        if label not in task.labels:
            known = did_you_mean(label, task.labels)
            raise SpecError(f"recipe.class_weights: task {task.id} has no label {label!r}{known}")


def check_prompts(recipe: RecipeSpec, embedding: SentenceEmbeddingConfig) -> None:
    """Check that a recipe mentions the prompts that the model it starts from was trained with. Raises: SpecError."""
    for name in ("query_prompt", "document_prompt"):
        if getattr(recipe, name) is None and (own := getattr(embedding, name)):
            raise SpecError(
                f"recipe.{name}: the model that training starts from has {own!r} before each text; write that, "
                'another one, or "" for none'
            )


def _fields_of_others(head: Head) -> dict[str, str]:
    """The recipe's fields that are made for other types, with the reason why this one refuses each."""
    own = TASK_TYPES[head].recipe_fields
    made_for: dict[str, list[str]] = {}
    for other in TASK_TYPES.values():
        for name in sorted(other.recipe_fields - own):
            made_for.setdefault(name, []).append(f"{other.purpose} ({other.head})")
    return {name: f"it is for {' and '.join(uses)}; the task's head is {head}" for name, uses in made_for.items()}
