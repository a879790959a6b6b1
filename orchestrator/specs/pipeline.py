"""Several stages in one file; a stage names another's result as `@stage`."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from orchestrator.specs.corpus import CorpusSpec, TokenizerSpec
from orchestrator.specs.distill import DistillSpec
from orchestrator.specs.fields import Spec, identity
from orchestrator.specs.pretrain import PretrainSpec
from orchestrator.specs.sweep import SweepSpec
from orchestrator.specs.task import EvaluateSpec

StageSpec = Annotated[
    TokenizerSpec | CorpusSpec | PretrainSpec | SweepSpec | DistillSpec | EvaluateSpec, Field(discriminator="kind")
]


class PipelineSpec(Spec):
    """Stages in order; finished ones are reused by fingerprint."""

    title: ClassVar[str] = "run stages that use one another's results"
    kind: Literal["pipeline"] = identity("pipeline", "Selects this kind of spec.")
    stages: dict[str, StageSpec] = identity(
        doc="Stages by name, in order; `@name` stands for an earlier stage's tokenizer or model.", min_length=1
    )


AnySpec = TokenizerSpec | CorpusSpec | PretrainSpec | SweepSpec | DistillSpec | EvaluateSpec | PipelineSpec
