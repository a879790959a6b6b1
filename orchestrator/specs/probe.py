"""Probe: the snapshots of a pretraining run, fine-tuned on a small task, as a learning curve by downstream score."""

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from orchestrator.specs.fields import Spec, execution, identity
from orchestrator.specs.recipe import RecipeSpec
from orchestrator.specs.references import RANDOM
from orchestrator.specs.sweep import SweepExecutionSpec
from orchestrator.specs.task import WholeTask


class ProbeSpec(Spec):
    """Fine-tune every snapshot of a pretraining run on a task, and follow the score over the steps of pretraining."""

    title: ClassVar[str] = "follow a pretraining by its score on a task"
    kind: Literal["probe"] = identity("probe", "Selects this kind of spec.")
    run: str = identity(
        doc="The pretraining run, with `execution.snapshot_steps` in its spec: its id, its model's registered name or "
        "folder, or `@stage`."
    )
    steps: tuple[int, ...] | None = identity(
        None, "Steps of pretraining whose snapshots are fine-tuned; all that there are when left out.", unit="steps"
    )
    task: WholeTask = identity(doc="What is learnt, and from which files; `max_train_examples` keeps it small.")
    recipe: RecipeSpec = identity(
        RecipeSpec(), "How every trial is trained; the snapshots take the place of `init_from`."
    )
    seeds: tuple[int, ...] = identity((0, 1, 2), "Every snapshot is tried with each of these seeds.", min_length=1)
    threads_per_trial: int = identity(1, "Threads of a trial on CPUs; changes rounding, hence part of identity.", ge=1)
    execution: SweepExecutionSpec = execution(SweepExecutionSpec(), "How trials share the machine.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.recipe.init_from != RANDOM:
            raise ValueError(
                f"recipe.init_from is {self.recipe.init_from}, but trials start from the snapshots of `run`; "
                "leave it out, and take the random start as the snapshot of step 0"
            )
        for name, values in (("seeds", self.seeds), ("steps", self.steps)):
            if values is not None and len(set(values)) < len(values):
                raise ValueError(f"{name} {list(values)} repeat a value; name each once")
        if self.steps == ():
            raise ValueError("steps is empty; list some, or leave it out for all snapshots")
        return self
