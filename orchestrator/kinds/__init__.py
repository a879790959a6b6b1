"""Kinds of runs: everything that is particular to `kind: pretrain`, `kind: sweep` and so on, one file each.

A pipeline is no kind of its own: it has a run, but its stages are runs of these kinds, with plans and results of their
own. Planning and the runner go through them (`specs.pipeline.stages_of`).
"""

from orchestrator.kinds.base import AnyKind
from orchestrator.kinds.corpus import CorpusKind
from orchestrator.kinds.distill import DistillKind
from orchestrator.kinds.evaluate import EvaluateKind
from orchestrator.kinds.pretrain import PretrainKind
from orchestrator.kinds.probe import ProbeKind
from orchestrator.kinds.resolved import Resolved
from orchestrator.kinds.sweep import SweepKind
from orchestrator.kinds.tokenizer import TokenizerKind
from orchestrator.settings import Settings
from orchestrator.specs import Spec
from orchestrator.specs.pipeline import stages_of

KINDS: tuple[AnyKind, ...] = (
    TokenizerKind(),
    CorpusKind(),
    PretrainKind(),
    SweepKind(),
    ProbeKind(),
    DistillKind(),
    EvaluateKind(),
)

_BY_NAME = {kind.name: kind for kind in KINDS}


def kind_of(spec: Spec) -> AnyKind:
    """The kind of a spec that is no pipeline."""
    return _BY_NAME[spec.kind]


def resolved_inputs(spec: Spec, settings: Settings) -> Resolved:
    """An empty `Resolved` for a spec, and for all stages of a pipeline together."""
    return Resolved(stages_of(spec), settings, kind_of)
