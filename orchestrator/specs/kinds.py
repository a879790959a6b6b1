"""Kinds of specs by name; the class of one is loaded when it is asked for, so that names alone cost nothing."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.specs.pipeline import AnySpec

SPEC_KINDS: Mapping[str, tuple[str, str]] = {
    "tokenizer": ("orchestrator.specs.corpus", "TokenizerSpec"),
    "corpus": ("orchestrator.specs.corpus", "CorpusSpec"),
    "pretrain": ("orchestrator.specs.pretrain", "PretrainSpec"),
    "sweep": ("orchestrator.specs.sweep", "SweepSpec"),
    "probe": ("orchestrator.specs.sweep", "ProbeSpec"),
    "distill": ("orchestrator.specs.distill", "DistillSpec"),
    "evaluate": ("orchestrator.specs.evaluate", "EvaluateSpec"),
    "pipeline": ("orchestrator.specs.pipeline", "PipelineSpec"),
}
"""Module and class of each kind: those of `specs.pipeline.AnySpec`, in its order."""


def spec_class(kind: str) -> "type[AnySpec]":
    """Return the class of a kind's specs. Raises: KeyError for a kind that there is not."""
    module, name = SPEC_KINDS[kind]
    cls: type[AnySpec] = getattr(import_module(module), name)
    return cls
