"""Number of workers of a training: one number, or a range within which it follows the cluster."""

from typing import Annotated, Any, Self

from pydantic import Discriminator, Field, Tag, model_validator

from orchestrator.specs.fields import Section, execution


class WorkerRange(Section):
    """A smallest and a largest number of workers."""

    min: int = execution(doc="Fewest workers that a run begins and goes on with.", ge=1)
    max: int = execution(doc="Most workers that a run takes.", ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}; exchange them")
        return self


def _form(value: Any) -> str:
    return "range" if isinstance(value, dict | WorkerRange) else "number"


NumWorkers = Annotated[
    Annotated[int, Field(ge=1), Tag("number")] | Annotated[WorkerRange, Tag("range")], Discriminator(_form)
]
"""A number or a range. Which of them is decided before either is checked, so that messages speak of one alone."""
