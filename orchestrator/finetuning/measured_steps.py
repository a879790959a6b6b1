"""Time of a fine-tuning on this machine's CPU, from a few of its steps: random weights, the task's own examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from bert_core.config import BertConfig
from bert_core.layerwise import unfreeze_top_layers
from bert_core.text.tokenization import Tokenizer
from orchestrator.finetuning.building import build_untrained
from orchestrator.finetuning.frozen import compute_states
from orchestrator.finetuning.heads import HEADS
from orchestrator.finetuning.training import Evaluation, fine_tune
from orchestrator.specs import RecipeSpec
from orchestrator.tasks import Task, build_features
from orchestrator.training.batch_order import num_evaluations
from orchestrator.training.step_time import (
    FORWARD_SHARE,
    NUM_MEASURED_STEPS,
    num_measured_examples,
    on_threads,
    typical_seconds,
)


@dataclass(frozen=True)
class ExampleTime:
    """Seconds that an example takes, as the windows of these examples are."""

    step_s: float
    """Seconds of an example in a training step."""
    frozen_s: float = 0.0
    """Seconds of an example in a frozen encoder, which reads it once for all trainings."""

    @property
    def answer_s(self) -> float:
        """Seconds of an example that is read without learning from it."""
        return self.frozen_s + FORWARD_SHARE * self.step_s

    def training_s(self, recipe: RecipeSpec, num_examples: int, num_validation_examples: int) -> float:
        """Seconds of a training by a recipe, evaluations among them, once a frozen encoder has read all examples."""
        num_scored = num_evaluations(recipe.epochs, recipe.evaluations_per_epoch) * num_validation_examples
        return self.step_s * (recipe.epochs * num_examples + FORWARD_SHARE * num_scored)


def measure_examples(
    task: Task,
    examples: Sequence[Any],
    recipe: RecipeSpec,
    config: BertConfig,
    tokenizer: Tokenizer,
    num_threads: int = 1,
) -> ExampleTime | None:
    """Measure training steps of a recipe on the first of a task's labeled examples; None for a model too large for it.

    Args:
        config: of the model that the recipe starts from, or of one of its size.
    """
    size = num_measured_examples(config, recipe.max_seq_length, min(recipe.batch_size, len(examples)))
    if not size:
        return None
    measured = examples[: size * NUM_MEASURED_STEPS]
    few = recipe.model_copy(
        update={"batch_size": size, "epochs": 1.0, "evaluations_per_epoch": NUM_MEASURED_STEPS, "patience": None}
    )
    seconds: list[float] = []

    def note(evaluation: Evaluation[None], best_score: float) -> None:
        seconds.append(1 / evaluation.examples_per_s)

    with on_threads(num_threads):
        features: Any = build_features(task, measured, tokenizer, task.type.options_type.of_recipe(recipe))
        model = build_untrained(task, few, config, tokenizer)
        HEADS[task.head].configure(model, task.objective, few, None)
        frozen_s = 0.0
        if recipe.freeze_encoder:
            begun_at = perf_counter()
            features = compute_states(features, model, recipe.precision)
            frozen_s = (perf_counter() - begun_at) / len(measured)
            unfreeze_top_layers(model, 0)
        fine_tune(model, features, few, lambda: (0.0, None), note)
    return ExampleTime(typical_seconds(seconds) * len(features.group_lengths) / len(measured), frozen_s)
