"""Fingerprints: of the fields that shape the result, and of no other.

Run alone: pytest tests/orchestrator/specs/test_fields.py
"""

from orchestrator.finetuning.search_space import TrialPlan
from orchestrator.specs import RecipeSpec
from orchestrator.specs.fields import Spec, execution, identity


class Sample(Spec):
    kind: str = identity("sample")
    rate: float = identity(0.1)
    workers: int = execution(1)


def test_a_field_of_the_identity_changes_the_fingerprint_and_one_of_the_execution_does_not() -> None:
    assert Sample(rate=0.2).fingerprint() != Sample().fingerprint()
    assert Sample(workers=8, name="other").fingerprint() == Sample().fingerprint()


def test_all_parameters_of_a_trial_are_shown_and_tell_its_key() -> None:
    plan = TrialPlan(0, {}, RecipeSpec())
    assert plan.parameters.keys() == RecipeSpec.model_fields.keys()
    assert plan.key == TrialPlan(1, {}, RecipeSpec()).key != TrialPlan(0, {}, RecipeSpec(epochs=2)).key
