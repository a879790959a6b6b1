"""Distillation: a small student learns to answer as its teacher, a trained model."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from bert_core.objectives.masked_lm import MaskedLM
from orchestrator.specs.fields import ExecutionSection, Section, Spec, execution, identity
from orchestrator.specs.pretrain import PretrainSpec
from orchestrator.specs.recipe import RecipeSpec
from orchestrator.specs.references import RANDOM
from orchestrator.specs.task import WholeTask

_UNREAD_RECIPE = RecipeSpec(precision="fp32")
"""Recipe of a spec whose student is pretrained."""


class LossWeightsSpec(Section):
    """Loss of the student: a sum of losses by their weights, of which one at least is above 0."""

    soft_targets_weight: float = identity(
        1.0,
        "Weight of the divergence from the teacher's softened outputs, over classes, tokens, an answer's places or the "
        "vocabulary; in regression, from its values; the squared distance from its vectors (embedding).",
        ge=0.0,
    )
    labels_weight: float = identity(0.0, "Weight of the loss of the task's labels, or of masked tokens.", ge=0.0)
    hidden_cosine_weight: float = identity(
        0.0, "Weight of the angle between both's last hidden states, which must be equally wide.", ge=0.0
    )
    temperature: float = identity(2.0, "Divides both's logits before the softmax; above 1 is softer.", gt=0.0)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if not self.soft_targets_weight + self.labels_weight + self.hidden_cosine_weight:
            raise ValueError(
                "soft_targets_weight, labels_weight and hidden_cosine_weight are all 0; give one a value above 0"
            )
        return self


class DistillExecutionSpec(ExecutionSection):
    """Resources of the student's process; pretraining has an execution of its own."""

    cpus: float = execution(1.0, "Ray CPUs.", unit="CPUs", gt=0.0)
    gpus: Annotated[float, Field(ge=0.0)] | Literal["auto"] = execution(
        "auto",
        "Ray GPUs; a fraction shares one. `auto` is 1 on a cluster that has GPUs, and 0 elsewhere.",
        unit="GPUs",
    )
    max_failures: int = execution(1, "Times it goes on after its process died.", ge=0)
    max_wait_minutes: float = execution(
        30.0, "Time that its process may wait for a place before the run fails.", unit="minutes", gt=0.0
    )


class DistillSpec(Spec):
    """Train a small model to answer as a fine-tuned one does, or to fill masks as a pretrained one does."""

    title: ClassVar[str] = "train a small model to answer as a large one does"
    kind: Literal["distill"] = identity("distill", "Selects this kind of spec.")
    teacher: str = identity(
        doc="The model to learn from, fine-tuned for the task or pretrained: a registered name, a run, a "
        "folder or a name on the hub."
    )
    num_hidden_layers: int | None = identity(
        None,
        "Layers that the student takes from the teacher, evenly spread; when left out it starts as recipe or "
        "pretraining says.",
        ge=1,
    )
    objective: LossWeightsSpec = identity(LossWeightsSpec(), "Loss of the student.")
    task: WholeTask | None = identity(
        None, "The task that the teacher was fine-tuned for; the student trains on its texts."
    )
    unlabeled: tuple[str, ...] = identity(
        (),
        "Files of further texts that only the teacher answers: laid out as the task's own, though labels are not read "
        "and need not be there; for classes and numbers plain text too, a line each (`.txt`).",
    )
    recipe: RecipeSpec = identity(
        RecipeSpec(), "Recipe of a student of a task; its tokens and its decoder are the teacher's."
    )
    pretraining: PretrainSpec | None = identity(
        None, "Training of the student of a pretrained model, in place of a task, with the teacher's tokenizer."
    )
    threads: int = identity(1, "Threads on CPUs, for a task; changes rounding, hence part of identity.", ge=1)
    execution: DistillExecutionSpec = execution(DistillExecutionSpec(), "Resources of the student's process.")

    @model_validator(mode="before")
    @classmethod
    def _settle_unread_recipe(cls, values: Any) -> Any:
        """Give the recipe that a pretrained student does not read a precision, which no device has to decide."""
        is_pretrained = isinstance(values, Mapping) and values.get("pretraining") is not None
        return {"recipe": _UNREAD_RECIPE, **values} if is_pretrained else values

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if (self.task is None) == (self.pretraining is None):
            both = "neither" if self.task is None else "both"
            raise ValueError(f"task and pretraining: {both} given; give task for a fine-tuned teacher, or pretraining")
        for name in ("unlabeled", "recipe", "threads", "execution") if self.pretraining is not None else ():
            default = _UNREAD_RECIPE if name == "recipe" else type(self).model_fields[name].default
            if getattr(self, name) != default:
                raise ValueError(
                    f"{name} is for a task; with pretraining its own fields say the same: leave {name} out"
                )
        if self.pretraining is not None and self.pretraining.token_objective != MaskedLM.name:
            raise ValueError(
                f"pretraining.token_objective is {self.pretraining.token_objective}, and the student of a pretrained "
                f"model fills masks as its teacher does; set it to {MaskedLM.name}"
            )
        if self.pretraining is not None and self.pretraining.steps == "auto":
            raise ValueError(
                "pretraining.steps auto measures steps of pretraining alone, and a teacher's take longer; give a number"
            )
        if self.unlabeled and not self.objective.soft_targets_weight + self.objective.hidden_cosine_weight:
            raise ValueError(
                "unlabeled texts teach nothing while objective.soft_targets_weight and hidden_cosine_weight are 0; "
                "leave them out"
            )
        section, part = ("recipe", self.recipe) if self.pretraining is None else ("pretraining", self.pretraining)
        if self.num_hidden_layers is not None and part.init_from != RANDOM:
            raise ValueError(
                f"num_hidden_layers takes layers of the teacher, and {section}.init_from names {part.init_from}; "
                "leave one of them out"
            )
        if self.recipe.tokenizer != RecipeSpec.model_fields["tokenizer"].default:
            raise ValueError("recipe.tokenizer is the teacher's own in distillation; leave it out")
        trains_head = self.objective.soft_targets_weight + self.objective.labels_weight
        for name in ("freeze_encoder", *(() if trains_head else ("unfreeze_every_epochs",))):
            if getattr(self.recipe, name):
                raise ValueError(f"recipe.{name} leaves nothing to learn with this objective; leave it out")
        return self
