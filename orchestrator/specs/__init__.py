"""Specs: what a person asks for, as frozen, validated, fingerprinted values.

Exports load on first use (PEP 562), so that the names of the kinds alone cost nothing.
"""

from collections.abc import Mapping
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

_EXPORTS = {
    "AnySpec": "orchestrator.specs.pipeline",
    "CorpusSpec": "orchestrator.specs.corpus",
    "DistillSpec": "orchestrator.specs.distill",
    "EvaluateSpec": "orchestrator.specs.evaluate",
    "ExecutionSpec": "orchestrator.specs.pretrain_execution",
    "ModelSpec": "orchestrator.specs.network",
    "Phase": "orchestrator.specs.pretrain",
    "PipelineSpec": "orchestrator.specs.pipeline",
    "PretrainSpec": "orchestrator.specs.pretrain",
    "ProbeSpec": "orchestrator.specs.sweep",
    "RecipeSpec": "orchestrator.specs.recipe",
    "Section": "orchestrator.specs.fields",
    "Spec": "orchestrator.specs.fields",
    "SweepSpec": "orchestrator.specs.sweep",
    "TaskSpec": "orchestrator.specs.task",
    "TextSource": "orchestrator.specs.corpus",
    "TokenizerSpec": "orchestrator.specs.corpus",
}
__all__ = list(_EXPORTS)

SPEC_KINDS: Mapping[str, str] = {
    "tokenizer": "TokenizerSpec",
    "corpus": "CorpusSpec",
    "pretrain": "PretrainSpec",
    "sweep": "SweepSpec",
    "probe": "ProbeSpec",
    "distill": "DistillSpec",
    "evaluate": "EvaluateSpec",
    "pipeline": "PipelineSpec",
}
"""Class of each kind: those of `specs.pipeline.AnySpec`, in its order."""


def spec_class(kind: str) -> "type[AnySpec]":
    """Return the class of a kind's specs. Raises: KeyError for an unknown kind."""
    cls: type[AnySpec] = __getattr__(SPEC_KINDS[kind])
    return cls


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
