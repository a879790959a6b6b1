"""Specs: what a person asks for, as frozen, validated and fingerprinted values."""

from orchestrator.specs.corpus import CorpusSpec, TextSource, TokenizerSpec
from orchestrator.specs.distill import DistillSpec
from orchestrator.specs.evaluate import EvaluateSpec
from orchestrator.specs.fields import Section, Spec
from orchestrator.specs.network import ModelSpec
from orchestrator.specs.pipeline import AnySpec, PipelineSpec
from orchestrator.specs.pretrain import ExecutionSpec, Phase, PretrainSpec
from orchestrator.specs.recipe import RecipeSpec
from orchestrator.specs.sweep import SweepSpec
from orchestrator.specs.task import TaskSpec

__all__ = [
    "AnySpec",
    "CorpusSpec",
    "DistillSpec",
    "EvaluateSpec",
    "ExecutionSpec",
    "ModelSpec",
    "Phase",
    "PipelineSpec",
    "PretrainSpec",
    "RecipeSpec",
    "Section",
    "Spec",
    "SweepSpec",
    "TaskSpec",
    "TextSource",
    "TokenizerSpec",
]
