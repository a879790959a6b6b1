"""Evaluation: the scoring of a model on a split of a task."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from bert_core.constants import AskedPrecision
from orchestrator.base.results import Split
from orchestrator.specs import network
from orchestrator.specs.fields import Spec, execution, identity
from orchestrator.specs.task import WholeTask


class EvaluateSpec(Spec):
    """Score a model on a split of a task."""

    title: ClassVar[str] = "score a model on a task"
    kind: Literal["evaluate"] = identity("evaluate", "Selects this kind of spec.")
    model: str = identity(doc="The model: a registered name, a run, a folder or a name on the hub.")
    task: WholeTask = identity(doc="The task.")
    split: Split = identity("validation", "The split that is scored.")
    rerank: str | None = identity(None, "A model fine-tuned on pairs, which scores the first hits again (retrieval).")
    relevant_label: str | None = identity(None, "Label that counts, where a classifier reranks.")
    num_candidates: int = identity(50, "First hits that are reranked.", unit="documents", ge=1)
    precision: AskedPrecision = network.precision()
    batch_size: int = execution(64, "Examples of a forward pass; fewer where memory runs out.", unit="examples", ge=1)
    gpus: Annotated[float, Field(ge=0.0)] | Literal["auto"] = execution(
        "auto",
        "Ray GPUs of the process that scores; a fraction shares one. `auto` is 1 on a cluster that has GPUs, and 0 "
        "elsewhere; with 0 the driver scores on its CPUs.",
        unit="GPUs",
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        for name in self.changed(("relevant_label", "num_candidates")) if self.rerank is None else ():
            raise ValueError(f"{name} says how hits are reranked, and there is no rerank; name the model that does")
        return self
