"""Kinds of runs: everything that is particular to `kind: pretrain`, `kind: sweep` and so on, an object each."""

from orchestrator.base.settings import Settings
from orchestrator.kinds.base import AnyKind
from orchestrator.kinds.corpus import CorpusKind, TokenizerKind
from orchestrator.kinds.distill import DistillKind
from orchestrator.kinds.evaluate import EvaluateKind
from orchestrator.kinds.pipeline import PipelineKind
from orchestrator.kinds.pretrain import PretrainKind
from orchestrator.kinds.probe import ProbeKind
from orchestrator.kinds.resolved import Resolved
from orchestrator.kinds.sweep import SweepKind
from orchestrator.specs import Spec

_KINDS_OF_STAGES: tuple[AnyKind, ...] = (
    TokenizerKind(),
    CorpusKind(),
    PretrainKind(),
    SweepKind(),
    ProbeKind(),
    DistillKind(),
    EvaluateKind(),
)
KINDS: tuple[AnyKind, ...] = (*_KINDS_OF_STAGES, PipelineKind(_KINDS_OF_STAGES))

_BY_NAME = {kind.name: kind for kind in KINDS}


def kind_of(spec: Spec) -> AnyKind:
    """The kind of a spec."""
    return _BY_NAME[spec.kind].for_spec(spec)


def resolved_inputs(spec: Spec, settings: Settings) -> Resolved:
    """An empty `Resolved` for a spec, and for all stages of a pipeline together."""
    return Resolved(spec.stage_specs(), settings, kind_of)
