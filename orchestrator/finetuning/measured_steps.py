"""Time of a fine-tuning on this machine's CPU, from a few of its steps: random weights, the task's own examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from bert_core.config import BertConfig
from bert_core.optimization import unfreeze_top_layers
from bert_core.text.tokenization import Tokenizer
from orchestrator.finetuning.building import build_untrained
from orchestrator.finetuning.heads import HEADS
from orchestrator.finetuning.logits import compute_states
from orchestrator.finetuning.training import Evaluation, fine_tune
from orchestrator.specs import RecipeSpec
from orchestrator.tasks.feature_cache import build_features
from orchestrator.tasks.task import Task
from orchestrator.training import step_time
from orchestrator.training.batch_order import num_evaluations


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
        return self.frozen_s + step_time.FORWARD_SHARE * self.step_s

    def training_s(self, recipe: RecipeSpec, num_examples: int, num_validation_examples: int) -> float:
        """Seconds of a training by a recipe, evaluations among them, once a frozen encoder has read all examples."""
        num_scored = num_evaluations(recipe.epochs, recipe.evaluations_per_epoch) * num_validation_examples
        return self.step_s * (recipe.epochs * num_examples + step_time.FORWARD_SHARE * num_scored)


def measure_examples(
    task: Task,
    examples: Sequence[Any],
    recipe: RecipeSpec,
    config: BertConfig,
    tokenizer: Tokenizer,
    num_threads: int = 1,
) -> ExampleTime | None:
    """Measure training steps of a recipe on some of a task's labeled examples; None for a model too large for it.

    Args:
        config: of the model that the recipe starts from, or of one of its size.
    """
    options = task.type.options_type.of_recipe(recipe)
    some = _spread(examples, recipe.batch_size)
    num_tokens = len(build_features(task, some, tokenizer, options).input_ids)
    size = step_time.num_measured_examples(config, num_tokens / len(some), len(some))
    if not size:
        return None
    measured = _spread(some, size)
    few = recipe.model_copy(
        update={"batch_size": size, "epochs": float(step_time.NUM_MEASURED_STEPS), "evaluations_per_epoch": 1}
        | {"patience": None, "unfreeze_every_epochs": None}
    )
    seconds: list[float] = []

    def note(evaluation: Evaluation[None], best_score: float) -> None:
        seconds.append(num_groups / evaluation.examples_per_s)

    with step_time.on_threads(num_threads):
        features: Any = build_features(task, measured, tokenizer, options)
        num_groups, num_measured_tokens = len(features.group_lengths), len(features.input_ids)
        model = build_untrained(task, few, config, tokenizer)
        HEADS[task.head].configure(model, task.objective, few, None)
        frozen_s = 0.0
        if recipe.freeze_encoder:
            begun_at = perf_counter()
            features = compute_states(features, model, recipe.precision)
            frozen_s = (perf_counter() - begun_at) / len(measured)
            unfreeze_top_layers(model, 0)
        fine_tune(model, features, few, lambda: (0.0, None), note)
    example_s = step_time.example_seconds(seconds, len(measured))
    return ExampleTime(example_s * num_tokens / len(some) * len(measured) / num_measured_tokens, frozen_s)


def _spread(examples: Sequence[Any], count: int) -> Sequence[Any]:
    """So many examples from all over a file, whose beginning may be unlike the rest; all where there are no more."""
    return examples[:: max(1, len(examples) // count)][:count]
