"""Specs: what a person asks for, as frozen, validated, fingerprinted values.

Exports load on first use (PEP 562), so that the names of the kinds alone cost nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what the table says, for type checkers and editors
    from orchestrator.specs.corpus import CorpusSpec as CorpusSpec
    from orchestrator.specs.corpus import TextSource as TextSource
    from orchestrator.specs.corpus import TokenizerSpec as TokenizerSpec
    from orchestrator.specs.distill import DistillSpec as DistillSpec
    from orchestrator.specs.evaluate import EvaluateSpec as EvaluateSpec
    from orchestrator.specs.fields import Section as Section
    from orchestrator.specs.fields import Spec as Spec
    from orchestrator.specs.network import ModelSpec as ModelSpec
    from orchestrator.specs.pipeline import AnySpec as AnySpec
    from orchestrator.specs.pipeline import PipelineSpec as PipelineSpec
    from orchestrator.specs.pretrain import Phase as Phase
    from orchestrator.specs.pretrain import PretrainSpec as PretrainSpec
    from orchestrator.specs.pretrain_execution import ExecutionSpec as ExecutionSpec
    from orchestrator.specs.recipe import RecipeSpec as RecipeSpec
    from orchestrator.specs.sweep import ProbeSpec as ProbeSpec
    from orchestrator.specs.sweep import SweepSpec as SweepSpec
    from orchestrator.specs.task import TaskSpec as TaskSpec

_NAMES = {
    "corpus": ("CorpusSpec", "TextSource", "TokenizerSpec"),
    "distill": ("DistillSpec",),
    "evaluate": ("EvaluateSpec",),
    "fields": ("Section", "Spec"),
    "network": ("ModelSpec",),
    "pipeline": ("AnySpec", "PipelineSpec"),
    "pretrain": ("Phase", "PretrainSpec"),
    "pretrain_execution": ("ExecutionSpec",),
    "recipe": ("RecipeSpec",),
    "sweep": ("ProbeSpec", "SweepSpec"),
    "task": ("TaskSpec",),
}
_EXPORTS = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}
__all__ = list(_EXPORTS)

SPEC_KINDS = ("tokenizer", "corpus", "pretrain", "sweep", "probe", "distill", "evaluate", "pipeline")
"""The kinds of `specs.pipeline.AnySpec`, in its order; the class of `sweep` is `SweepSpec`, and so on."""


def spec_class(kind: str) -> "type[AnySpec]":
    """Return the class of a kind's specs. Raises: KeyError for an unknown kind."""
    if kind not in SPEC_KINDS:
        raise KeyError(kind)
    name = f"{kind.title()}Spec"
    cls: type[AnySpec] = getattr(import_module(_EXPORTS[name]), name)
    return cls


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
