"""Fine-tuning on a task: a sweep over the space of recipes, or over the snapshots of a pretraining."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, ValidationError, model_validator

from orchestrator.base.nearest import did_you_mean
from orchestrator.specs.fields import ExecutionSection, Spec, execution, identity
from orchestrator.specs.recipe import RecipeSpec
from orchestrator.specs.references import RANDOM, join_starts, split_starts
from orchestrator.specs.search_algorithms import SEARCHES
from orchestrator.specs.search_axes import AnyAxis, Axis, Choices, Scalar
from orchestrator.specs.task import TaskSpec, WholeTask
from orchestrator.specs.validation import rule_of

if TYPE_CHECKING:
    SearchName = str
else:  # the list decides which names there are
    SearchName = Literal[tuple(SEARCHES)]


class SweepExecutionSpec(ExecutionSection):
    """Execution of a sweep: the trials' shares of the machine."""

    cpus_per_trial: float = execution(1.0, "Ray CPUs of a trial; fractions allowed.", unit="CPUs", gt=0.0)
    gpus_per_trial: Annotated[float, Field(ge=0.0)] | Literal["auto"] = execution(
        "auto",
        "Ray GPUs of a trial; a fraction shares one, and as much of its memory. `auto` is 1 on a cluster that has "
        "GPUs, and 0 elsewhere.",
        unit="GPUs",
    )
    on_head: bool = execution(False, "Whether trials may be on a cluster's head although other nodes have room.")
    max_concurrent_trials: int | None = execution(None, "Trials at a time; as many as fit when left out.", ge=1)
    checkpoint_every_minutes: float = execution(
        1.0,
        "Training time of a trial, at least, between two of its checkpoints, which are written after evaluations: "
        "a trial that was interrupted goes on from there. 0 for one after each evaluation.",
        unit="minutes",
        ge=0.0,
    )
    max_failures: int = execution(1, "Times a trial whose process died is tried again.", ge=0)
    max_wait_minutes: float = execution(
        30.0, "Time that no trial may have a place before the sweep ends.", unit="minutes", gt=0.0
    )


class SweepSpec(Spec):
    """Fine-tune on a task, over a space of variations."""

    title: ClassVar[str] = "fine-tune over a search space"
    kind: Literal["sweep"] = identity("sweep", "Selects this kind of spec.")
    task: TaskSpec = identity(doc="The task that is learned, and its files.")
    recipe: RecipeSpec = identity(RecipeSpec(), "Recipe of a trial, where the space does not vary it.")
    space: dict[str, AnyAxis | tuple[Scalar, ...]] = identity(
        {}, "Recipe fields to vary: a list of values, or choice, uniform, log_uniform, int_uniform."
    )
    search: SearchName = identity("grid", "Algorithm that chooses the points of the space.")
    trials: int | None = identity(
        None,
        "Points of the space to try at most, each with every seed: a sweep has points × seeds trials. "
        "A grid tries all its points when this is left out.",
        unit="points",
        ge=1,
    )
    seeds: tuple[int, ...] = identity((0,), "Every point is tried with each of these seeds.", min_length=1)
    search_seed: int = identity(
        0,
        "Decides the points that a search draws at random; a grid draws none.",
        ge=0,
        lt=2**32,
    )
    scheduler: Literal["none", "asha"] = identity("none", "Whether weak trials are ended early.")
    reduction_factor: int = identity(3, "With `asha`: one in so many trials, the best, goes on at each decision.", ge=2)
    grace_evaluations: int = identity(
        1,
        "With `asha`: evaluations of a trial before it may be ended.",
        unit="evaluations",
        ge=1,
    )
    threads_per_trial: int = identity(1, "Threads of a trial on CPUs; changes rounding, hence part of identity.", ge=1)
    execution: SweepExecutionSpec = execution(SweepExecutionSpec(), "Trials' shares of the machine.")

    @property
    def axes(self) -> dict[str, Axis]:
        """The search space with every axis as an object, whichever way it is written."""
        return {name: Choices(axis) if isinstance(axis, tuple) else axis for name, axis in self.space.items()}

    @property
    def folds(self) -> tuple[int, ...] | tuple[None]:
        """The folds that each recipe is validated on in turn; None alone where there is a validation split."""
        num_folds = None if self.task.split is None else self.task.split.folds
        return (None,) if num_folds is None else tuple(range(num_folds))

    @property
    def trials_per_point(self) -> int:
        """Number of trials of a point: one for each seed and fold."""
        return len(self.seeds) * len(self.folds)

    @model_validator(mode="after")
    def _check_space(self) -> Self:
        search = SEARCHES[self.search]
        for name, axis in self.axes.items():
            if name not in RecipeSpec.model_fields:
                raise ValueError(f"space.{name} is no field of recipe{did_you_mean(name, RecipeSpec.model_fields)}")
            if name == "seed":
                raise ValueError("space.seed: give seeds in `seeds`, so that trials are grouped by the rest")
            if not axis.written:
                raise ValueError(f"space.{name} lists no values; give at least one, or leave it out")
            if axis.listed is None and not search.accepts_ranges:
                raise ValueError(
                    f"space.{name} is a range, which a {self.search} cannot walk; list values or use search: random"
                )
            for value in axis.written:
                try:
                    read = getattr(RecipeSpec.model_validate({name: value}), name)
                    if isinstance(value, bool) and not isinstance(read, bool):
                        raise ValueError(f"space.{name} has {str(value).lower()}, and recipe.{name} is a number")
                except ValidationError as error:
                    problem = error.errors()[0]
                    if problem["loc"]:  # what fields say together is checked over the whole space
                        raise ValueError(
                            f"space.{name} has {value!r}, which recipe.{name} refuses; {rule_of(problem)}"
                        ) from None
        return self

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        axes = self.axes
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds {list(self.seeds)} repeat a value; a trial is made once per seed")
        for name in self.changed(("reduction_factor", "grace_evaluations")) if self.scheduler == "none" else ():
            raise ValueError(f"{name}: scheduler none does not read it; leave {name} out")
        if len(self.folds) > 1 and self.scheduler != "none":
            raise ValueError(
                f"scheduler: {self.scheduler} ends trials early, and a mean over some of the folds says nothing; "
                "leave scheduler or task.split out"
            )
        if SEARCHES[self.search].needs_max_points and self.trials is None:
            raise ValueError(f"search: {self.search} needs `trials`, the number of points to try")
        models = axes["init_from"].written if "init_from" in axes else (self.recipe.init_from,)
        for names in (split_starts(str(name)) for name in models):
            if len(names) > 1 and (len(names) != len(self.seeds) or RANDOM in names):
                raise ValueError(
                    f"init_from {join_starts(names)} names {len(names)} models, one for each seed, and seeds has "
                    f"{len(self.seeds)}; name as many models as there are seeds, `{RANDOM}` not among them, or one"
                )
        if RANDOM in models and self.recipe.tokenizer is None and "tokenizer" not in self.space:
            raise ValueError(
                "recipe.tokenizer is left out, but init_from has `random`, and random weights need a tokenizer; "
                "name a folder, or a model whose tokenizer to use"
            )
        return self


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
    def _check_together(self) -> Self:
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
