"""What a distillation's spec refuses before anything is looked for.

Run alone: pytest tests/orchestrator/specs/test_distill.py
"""

from typing import Any

import pytest

from orchestrator.errors import SpecError
from orchestrator.specs import DistillSpec
from orchestrator.specs.loading import parse_spec, spec_values
from orchestrator.specs.references import names_of

DISTILL: dict[str, Any] = {"kind": "distill", "teacher": "large", "task": {"id": "sst2", "folder": "SST-2"}}

PRETRAINING = {"corpus": {"files": ["a.txt"]}, "tokenizer": "words", "steps": 10}

LEFT_TO_RIGHT = {"token_objective": "left_to_right", "sentence_objective": "none"}


def test_soft_targets_alone_are_the_default() -> None:
    spec = parse_spec({**DISTILL, "num_hidden_layers": 2})
    assert isinstance(spec, DistillSpec)
    objective = spec.objective
    assert (
        objective.soft_targets_weight,
        objective.labels_weight,
        objective.hidden_cosine_weight,
        objective.temperature,
    ) == (1, 0, 0, 2)
    assert parse_spec(spec_values(spec)) == spec


def test_teacher_and_start_are_names_of_models() -> None:
    assert names_of(parse_spec(DISTILL)) == [("teacher", "large")]
    spec = parse_spec({**DISTILL, "recipe": {"init_from": "small"}})
    assert names_of(spec) == [("teacher", "large"), ("init_from", "small")]
    spec = parse_spec({"kind": "distill", "teacher": "large", "pretraining": PRETRAINING})
    assert names_of(spec) == [("teacher", "large"), ("tokenizer", "words")]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        (
            {"objective": {"soft_targets_weight": 0}},
            "objective soft_targets_weight, labels_weight and hidden_cosine_weight are all 0; give one",
        ),
        ({"objective": {"labels_weight": -1}}, "objective.labels_weight is -1; it must be at least 0"),
        ({"objective": {"temperature": 0}}, "objective.temperature is 0; it must be more than 0"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; it must be at least 1"),
        (
            {"num_hidden_layers": 2, "recipe": {"init_from": "small"}},
            "num_hidden_layers takes layers of the teacher, and recipe.init_from names small; leave one of them out",
        ),
        ({"recipe": {"tokenizer": "words"}}, "recipe.tokenizer is the teacher's own in distillation; leave it out"),
        ({"recipe": {"freeze_encoder": True}}, "recipe.freeze_encoder keeps a student from learning; leave it out"),
        ({"recipe": {"token_decoder": "crf"}}, "recipe.token_decoder is the teacher's own in distillation"),
        ({"teacher": None}, "teacher is None; it must be text"),
        ({"task": None}, "task and pretraining: neither given; give task for a fine-tuned teacher, or pretraining"),
        ({"pretraining": PRETRAINING}, "task and pretraining: both given; give task for a fine-tuned teacher"),
        (
            {"task": None, "num_hidden_layers": 2, "pretraining": {**PRETRAINING, "init_from": "small"}},
            "num_hidden_layers takes layers of the teacher, and pretraining.init_from names small; leave one of them",
        ),
        (
            {"task": None, "pretraining": {**PRETRAINING, **LEFT_TO_RIGHT}},
            "pretraining.token_objective is left_to_right, and the student of a pretrained model fills masks as its "
            "teacher does; set it to masked_lm",
        ),
        (
            {"task": None, "pretraining": {**PRETRAINING, "budget": {"hours": 2}}},
            "pretraining.budget: the run is the distillation; give it its budget, beside `pretraining`",
        ),
        ({"task": None, "pretraining": {**PRETRAINING, "stepz": 3}}, "pretraining.stepz is no field"),
    ],
)
def test_a_contradiction_is_named_with_its_remedy(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec({**DISTILL, **fields})
    assert complaint in str(caught.value)


def test_a_distillation_without_a_teacher_says_what_that_is() -> None:
    with pytest.raises(SpecError, match="teacher is needed: The model to learn from"):
        parse_spec({"kind": "distill"})


def test_a_field_that_has_gone_names_what_to_use_instead() -> None:
    pretraining = {**PRETRAINING, "execution": {"cuda_graphs": True}}
    with pytest.raises(SpecError, match=r"pretraining.execution.cuda_graphs .*execution.compile_layers"):
        parse_spec({"kind": "distill", "teacher": "large", "pretraining": pretraining})


def test_gpus_are_left_to_the_cluster_and_are_in_no_fingerprint() -> None:
    spec = parse_spec(DISTILL)
    assert isinstance(spec, DistillSpec)
    assert spec.execution.gpus == "auto"
    assert parse_spec({**DISTILL, "execution": {"gpus": 0.0}}).fingerprint() == spec.fingerprint()
    with pytest.raises(SpecError, match=r"execution.gpus is -1"):
        parse_spec({**DISTILL, "execution": {"gpus": -1}})


def test_a_recorded_pretraining_of_a_student_still_reads_whose_execution_had_no_gpu_by_default() -> None:
    pretraining = {"kind": "distill", "teacher": "large", "pretraining": PRETRAINING}
    recorded = {**pretraining, "execution": {"cpus": 1.0, "gpus": 0.0, "max_failures": 1}}
    assert parse_spec(recorded).fingerprint() == parse_spec(pretraining).fingerprint()
    with pytest.raises(SpecError, match="execution is for a task"):
        parse_spec({**pretraining, "execution": {"gpus": 1.0}})
