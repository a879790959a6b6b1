"""Fingerprints outlive versions: those of archived specs stay as they were, and added fields say what stood before.

Run alone: pytest tests/orchestrator/specs/test_fields.py
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import orchestrator.kinds  # noqa: F401  (imports every kind's spec)
from orchestrator.finetuning.search_space import TrialPlan
from orchestrator.specs import RecipeSpec, TaskSpec
from orchestrator.specs.added_fields import ADDED_FIELDS
from orchestrator.specs.fields import Section, Spec, execution, identity
from orchestrator.specs.loading import parse_spec

ARCHIVE: dict[str, Any] = json.loads((Path(__file__).parents[2] / "saved_before" / "fingerprints.json").read_text())
"""Identity fields and fingerprints of version 0.1.0."""


class Before(Spec):
    kind: str = identity("sample")
    rate: float = identity(0.1)


class After(Before):
    rounds: int = identity(1, before=1)
    workers: int = execution(1)


class AfterAnotherDefault(Before):
    rounds: int = identity(3, before=1)


def sections(parent: type[Section] = Section) -> Iterator[type[Section]]:
    for child in parent.__subclasses__():
        yield child
        yield from sections(child)


@pytest.mark.parametrize("archived", ARCHIVE["specs"], ids=lambda archived: archived["about"])
def test_the_fingerprint_of_an_archived_spec_is_what_it_was(archived: dict[str, Any]) -> None:
    assert parse_spec(archived["spec"]).fingerprint() == archived["fingerprint"]


def test_the_key_of_a_trial_is_what_it_was() -> None:
    assert TrialPlan(0, {}, RecipeSpec()).key == ARCHIVE["trial_key_of_default_recipe"]


@pytest.mark.parametrize("name", ARCHIVE["identity_fields"])
def test_an_added_identity_field_says_what_stood_before(name: str) -> None:
    (section,) = (each for each in sections() if each.__name__ == name and each.__module__.startswith("orchestrator."))
    identity_fields = {
        field: info.json_schema_extra
        for field, info in section.model_fields.items()
        if isinstance(info.json_schema_extra, dict) and info.json_schema_extra["role"] == "identity"
    }
    archived = set(ARCHIVE["identity_fields"][name])
    assert archived <= identity_fields.keys(), "a field that is gone or renamed changes every fingerprint"
    for field in identity_fields.keys() - archived:
        assert "before" in (identity_fields[field] or {}), f"identity(…, before=…) is missing at {name}.{field}"


def test_the_added_fields_of_recipes_and_tasks_stand_where_the_registry_looks() -> None:
    found = {
        f"{section}.{name}": info.json_schema_extra["before"]
        for section, cls in (("recipe", RecipeSpec), ("task", TaskSpec))
        for name, info in cls.model_fields.items()
        if isinstance(info.json_schema_extra, dict) and "before" in info.json_schema_extra
    }
    assert found == ADDED_FIELDS


def test_a_field_as_before_leaves_the_fingerprint_as_it_was() -> None:
    assert After().fingerprint() == Before().fingerprint()


def test_an_added_field_that_is_used_changes_the_fingerprint() -> None:
    assert After(rounds=2).fingerprint() != Before().fingerprint()


def test_a_changed_default_keeps_the_fingerprint_of_each_value() -> None:
    assert AfterAnotherDefault(rounds=1).fingerprint() == Before().fingerprint()
    assert AfterAnotherDefault().fingerprint() == After(rounds=3).fingerprint() != Before().fingerprint()


def test_an_execution_field_is_in_no_fingerprint() -> None:
    assert After(workers=8).fingerprint() == After().fingerprint()


def test_all_parameters_of_a_trial_are_shown_whatever_the_fingerprint_holds() -> None:
    assert TrialPlan(0, {}, RecipeSpec()).parameters.keys() == RecipeSpec.model_fields.keys()
