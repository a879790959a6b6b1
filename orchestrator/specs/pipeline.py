"""Pipelines: several stages in one file, which name one another's results as `@stage`; and the list of all specs."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from orchestrator.specs.corpus import CorpusSpec, TokenizerSpec
from orchestrator.specs.distill import DistillSpec
from orchestrator.specs.evaluate import EvaluateSpec
from orchestrator.specs.fields import Spec, identity
from orchestrator.specs.pretrain import PretrainSpec
from orchestrator.specs.sweep import ProbeSpec, SweepSpec

StageSpec = TokenizerSpec | CorpusSpec | PretrainSpec | SweepSpec | ProbeSpec | DistillSpec | EvaluateSpec
"""The spec of every kind of run: the one list of them."""


class PipelineSpec(Spec):
    """Stages in order; finished ones are reused by fingerprint."""

    title: ClassVar[str] = "run stages that use one another's results"
    kind: Literal["pipeline"] = identity("pipeline", "Selects this kind of spec.")
    stages: dict[str, Annotated[StageSpec, Field(discriminator="kind")]] = identity(
        doc="Stages by name, in order; `@name` stands for an earlier stage's tokenizer or model. "
        "With `extends: FILE` a stage begins as that spec. With `variants: {NAME: {FIELD: VALUE, …}, …}` it becomes a "
        "stage for each, `stage.NAME`, which differs in those fields; `@stage` in a list then stands for all of them. "
        "With `seeds: [0, 1, 2]` a pretraining becomes a stage for each, `stage.SEED`; `@stage` as a sweep's init_from "
        "is then one start, whose model for the sweep's first seed is that of the first.",
        min_length=1,
    )

    def stage_specs(self) -> Mapping[str, Spec]:
        return self.stages

    @model_validator(mode="after")
    def _check_stages_differ(self) -> Self:
        first: dict[tuple[str, str], str] = {}
        for name, spec in self.stages.items():
            same = first.setdefault((name.partition(".")[0], spec.fingerprint()), name)
            if same != name:
                raise ValueError(
                    f"stages.{name} asks for what stages.{same} does; change a field of it or leave it out"
                )
        return self


AnySpec = StageSpec | PipelineSpec
