"""What a distillation's spec refuses before anything is run. Alone: pytest tests/orchestrator/specs/test_distill.py"""

from typing import Any

import pytest

from bert_core.constants import Precision
from orchestrator.base.errors import SpecError
from orchestrator.specs import DistillSpec
from orchestrator.specs.loading import parse_spec, spec_values
from orchestrator.specs.precision import asks_auto, with_precision
from orchestrator.specs.references import names_of

DISTILL: dict[str, Any] = {"kind": "distill", "teacher": "large", "task": {"id": "sst2", "folder": "SST-2"}}

PRETRAINING = {"corpus": {"files": ["a.txt"]}, "tokenizer": "words", "steps": 10}

HIDDEN_STATES = {"soft_targets_weight": 0, "hidden_cosine_weight": 1}

LEFT_TO_RIGHT = {"token_objective": "left_to_right", "sentence_objective": "none"}


def test_soft_targets_alone_are_the_default() -> None:
    spec = parse_spec({**DISTILL, "num_hidden_layers": 2})
    assert isinstance(spec, DistillSpec)
    weights = {"soft_targets_weight": 1, "labels_weight": 0, "hidden_cosine_weight": 0, "temperature": 2}
    assert weights.items() <= spec.objective.model_dump().items()
    assert parse_spec(spec_values(spec)) == spec


def test_teacher_and_start_are_names_of_models() -> None:
    assert names_of(parse_spec(DISTILL)) == [("teacher", "large")]
    spec = parse_spec({**DISTILL, "recipe": {"init_from": "small"}})
    assert names_of(spec) == [("teacher", "large"), ("init_from", "small")]
    spec = parse_spec({"kind": "distill", "teacher": "large", "pretraining": PRETRAINING})
    assert names_of(spec) == [("teacher", "large"), ("tokenizer", "words")]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_student_of_a_corpus_is_settled_by_its_pretraining_alone(precision: Precision) -> None:
    spec = parse_spec({"kind": "distill", "teacher": "large", "pretraining": PRETRAINING})
    settled = parse_spec(spec_values(with_precision(spec, precision)))
    assert isinstance(settled, DistillSpec)
    assert settled.pretraining is not None
    assert (settled.pretraining.precision, settled.recipe.precision) == (precision, "fp32")
    assert not asks_auto(settled)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"objective": {"soft_targets_weight": 0}}, "soft_targets_weight, labels_weight"),
        ({"objective": {"labels_weight": -1}}, "objective.labels_weight"),
        ({"objective": {"temperature": 0}}, "objective.temperature"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": 2, "recipe": {"init_from": "small"}}, "recipe.init_from"),
        ({"recipe": {"tokenizer": "words"}}, "recipe.tokenizer"),
        ({"recipe": {"freeze_encoder": True}}, "recipe.freeze_encoder"),
        ({"recipe": {"crf_learning_rate": 0.01}}, "crf_learning_rate"),
        ({"recipe": {"unfreeze_every_epochs": 1}, "objective": HIDDEN_STATES}, "recipe.unfreeze_every_epochs"),
        ({"teacher": None}, "teacher is None"),
        ({"task": None}, "task and pretraining: neither"),
        ({"pretraining": PRETRAINING}, "task and pretraining: both"),
        ({"task": None, "num_hidden_layers": 2, "pretraining": {**PRETRAINING, "init_from": "a"}}, "pretraining.init"),
        ({"task": None, "pretraining": {**PRETRAINING, **LEFT_TO_RIGHT}}, "pretraining.token_objective"),
        ({"task": None, "pretraining": {**PRETRAINING, "stepz": 3}}, "pretraining.stepz"),
        ({"task": None, "pretraining": PRETRAINING, "execution": {"gpus": 0.0}}, "execution"),
    ],
)
def test_a_contradiction_is_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec({**DISTILL, **fields})
    assert named in str(caught.value)


def test_gpus_are_left_to_the_cluster_and_are_in_no_fingerprint() -> None:
    spec = parse_spec(DISTILL)
    assert isinstance(spec, DistillSpec)
    assert spec.execution.gpus == "auto"
    assert parse_spec({**DISTILL, "execution": {"gpus": 0.0}}).fingerprint() == spec.fingerprint()
    with pytest.raises(SpecError, match=r"execution.gpus is -1"):
        parse_spec({**DISTILL, "execution": {"gpus": -1}})
