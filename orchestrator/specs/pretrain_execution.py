"""Execution of a pretraining: workers, devices, checkpoints, intervals."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from orchestrator.specs.fields import ExecutionSection, Section, execution

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_SELECTED = re.compile(rf"!?(?:{_LABEL}|in\({_LABEL}(?:, ?{_LABEL})*\))")
"""Values of Ray's label selectors."""

NUM_EVALUATIONS = 10
"""Held-out evaluations of a run whose spec has no interval for them."""


class WorkerRange(Section):
    """A smallest and a largest number of workers."""

    min: int = execution(doc="Fewest workers that a run begins and goes on with.", ge=1)
    max: int = execution(doc="Most workers that a run takes.", ge=1)

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}; exchange them")
        return self


def _tag_of(value: Any) -> str:
    return "range" if isinstance(value, dict | WorkerRange) else "number"


NumWorkers = Annotated[
    Annotated[int, Field(ge=1), Tag("number")] | Annotated[WorkerRange, Tag("range")], Discriminator(_tag_of)
]
"""A number or a range. Which of them is decided before either is checked, so that messages speak of one alone."""


class ExecutionSpec(ExecutionSection):
    """Execution of a pretraining; none of its fields changes the sequence of batches."""

    num_workers: NumWorkers = execution(
        1,
        "Training processes; one GPU each when on GPUs. With `{min: 2, max: 8}` as many as Ray finds room for, while "
        "nodes come and go: a change trains the steps since the last checkpoint again, and weights differ in their "
        "last bits from those of another number.",
    )
    device: Literal["auto", "cpu", "gpu"] = execution("auto", "`auto` takes GPUs where the cluster has them.")
    cpus_per_worker: float = execution(1.0, "Ray CPUs reserved for each worker.", unit="CPUs", gt=0.0)
    placement: Literal["pack", "spread"] = execution(
        "pack", "Workers on as few nodes as hold them, or spread over as many as there are."
    )
    node_labels: dict[str, str] = execution(
        {},
        "Labels of the nodes that workers may be on, by Ray's names, as `{ray.io/accelerator-type: L40S}`; a value may "
        "be `!a`, `in(a, b)` or `!in(a, b)`.",
    )
    on_head: bool = execution(False, "Whether workers may be on a cluster's head although other nodes have room.")
    activation_checkpointing: Literal["none", "layers"] = execution(
        "none",
        "`layers` keeps only what goes into a layer and computes its inside again in backward: less memory, about a "
        "third more time, the same bits.",
    )
    compile_layers: Literal["auto", "never", "always"] = execution(
        "auto",
        "Layers as compiled kernels. `auto` compiles in runs of 10,000 steps and more whose steps are CUDA graphs: "
        "elsewhere launching them takes longer than they win. Other last bits and dropout than without; a resumed run "
        "goes on as it began.",
    )
    cuda_graphs: Literal["never", "auto"] = execution(
        "never",
        "`auto`: on GPUs a step's forward and backward are launched once for each of a few sizes of batches, which are "
        "filled up to it, and repeated from there, wherever the batch is not cut into parts. Small models are held up "
        "by launches. Takes up to twice the memory. Other last bits and dropout than without; a resumed run goes on as "
        "it began.",
    )
    deterministic: bool = execution(
        False,
        "On GPUs only kernels that add up in one order: a run that is resumed ends at the same bits, as on CPUs in any "
        "case. Attention's backward pass takes longer.",
    )
    data_cpus: float = execution(1.0, "Ray CPUs for each worker's data pipeline.", unit="CPUs", gt=0.0)
    checkpoint_every_steps: int | None = execution(None, "A checkpoint every so many steps.", unit="steps", ge=1)
    checkpoint_every_minutes: float | None = execution(
        10.0, "A checkpoint every so many minutes.", unit="minutes", gt=0.0
    )
    keep_checkpoints: int = execution(2, "Newest checkpoints kept on the storage.", ge=1)
    snapshot_steps: tuple[int, ...] = execution(
        (),
        "Steps after which the model is kept as a folder of its own, 0 for before the first. A probe makes a learning "
        "curve of them.",
        unit="steps",
    )
    snapshot_optimizer: bool = execution(
        False, "Whether a snapshot keeps the optimizer too, four times the bytes: another run can go on from there."
    )
    log_every_steps: int = execution(10, "Metrics are recorded every so many steps.", unit="steps", ge=1)
    evaluate_every_steps: int | None = execution(
        None, "Held-out evaluation every so many steps; ten times in the run when left out.", unit="steps", ge=1
    )
    evaluation_examples: int = execution(512, "Held-out examples of an evaluation at most.", unit="examples", ge=1)
    max_failures: int = execution(3, "Worker failures survived before the run fails.", ge=0)
    max_rollbacks: int = execution(
        3, "Batches that `on_divergence: rollback` passes over before the run fails.", unit="batches", ge=0
    )
    max_wait_minutes: float = execution(
        30.0,
        "Time that workers may wait for a place, or go without ending a step, before the run fails.",
        unit="minutes",
        gt=0.0,
    )

    @property
    def min_workers(self) -> int:
        """Fewest workers that a run begins and goes on with."""
        return self.num_workers.min if isinstance(self.num_workers, WorkerRange) else self.num_workers

    @property
    def max_workers(self) -> int:
        """Most workers that a run takes."""
        return self.num_workers.max if isinstance(self.num_workers, WorkerRange) else self.num_workers

    @property
    def is_elastic(self) -> bool:
        """Whether the number of workers follows the cluster."""
        return self.min_workers < self.max_workers

    @field_validator("node_labels")
    @classmethod
    def _check_labels(cls, labels: dict[str, str]) -> dict[str, str]:
        for name, value in labels.items():
            if not _SELECTED.fullmatch(value):
                raise ValueError(f"{name}: {value!r} selects no label; give a value, `!a`, `in(a, b)` or `!in(a, b)`")
        return labels
