"""What `orchestrator schema` says of the specs: complete, and true.

Alone: .venv/bin/pytest tests/orchestrator/specs/test_documentation.py
"""

import pytest

from orchestrator.search.algorithms import SEARCHES
from orchestrator.specs import AnySpec, PretrainSpec, SweepSpec
from orchestrator.specs.documentation import FieldDoc, document_fields
from orchestrator.specs.kinds import SPEC_KINDS, spec_class


def by_field(cls: type[AnySpec]) -> dict[str, FieldDoc]:
    return {row.field: row for row in document_fields(cls)}


@pytest.mark.parametrize("kind", SPEC_KINDS)
def test_every_field_has_a_sentence_a_type_and_a_role(kind: str) -> None:
    for row in document_fields(spec_class(kind)):
        assert row.about.endswith("."), row.field
        assert row.role in ("identity", "execution")
        assert row.type
        assert "typing" not in row.type


def test_rows_name_unit_bounds_and_default() -> None:
    rows = by_field(PretrainSpec)
    assert rows["steps"] == FieldDoc("steps", "whole number, ≥ 1", "steps", "required", "identity", "Optimizer steps.")
    assert rows["sentence_objective"].type == "next_sentence | sentence_order | none"
    assert rows["phases[].max_seq_length"].unit == "tokens"
    assert rows["execution.num_workers"].role == "execution"
    assert rows["mask_mix"].default == "[0.8, 0.1, 0.1]"


def test_names_of_searches_and_schedulers_are_those_of_the_lists() -> None:
    rows = by_field(SweepSpec)
    assert rows["search"].type == " | ".join(SEARCHES)
    assert rows["scheduler"].type == "none | asha"


def test_a_space_shows_the_forms_of_an_axis() -> None:
    rows = by_field(SweepSpec)
    assert "{log_uniform: 2 × number}" in rows["space"].type
    assert not any(field.startswith("space.") for field in rows)
