"""What `orchestrator schema` says of the specs. Alone: pytest tests/orchestrator/specs/test_documentation.py"""

from typing import get_args

import pytest

from orchestrator.specs import SPEC_KINDS, AnySpec, PretrainSpec, SweepSpec, spec_class
from orchestrator.specs.documentation import FieldDoc, document_fields
from orchestrator.specs.fields import Spec, execution, identity
from orchestrator.specs.search_algorithms import SEARCHES
from tests.orchestrator.cli.fresh_process import loaded_by_each


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
    about = "Examples of a step, over all workers."
    batch = FieldDoc("global_batch_size", "whole number, ≥ 1", "examples", "256", "identity", about)
    assert rows["global_batch_size"] == batch
    assert (rows["steps"].type, rows["steps"].default) == ("whole number or auto", "required")
    assert rows["sentence_objective"].type == "next_sentence | sentence_order | none"
    assert rows["phases[].max_seq_length"].unit == "tokens"
    assert rows["execution.num_workers"].role == "execution"
    assert rows["mask_mix"].default == "[0.8, 0.1, 0.1]"


def test_the_list_of_kinds_is_that_of_the_specs() -> None:
    assert [spec_class(kind) for kind in SPEC_KINDS] == list(get_args(AnySpec))
    assert [spec_class(kind).model_fields["kind"].default for kind in SPEC_KINDS] == list(SPEC_KINDS)
    with pytest.raises(KeyError):
        spec_class("swep")


def test_the_spec_of_a_sweep_is_read_without_the_arrays_of_pretraining() -> None:
    ((status, loaded),) = loaded_by_each([["schema", "sweep"]]).values()
    assert status == 0
    assert "pydantic" in loaded
    assert "numpy" not in loaded


class Sample(Spec):
    kind: str = identity("sample")
    rate: float = identity(0.1)
    workers: int = execution(1)


def test_a_field_of_the_identity_changes_the_fingerprint_and_one_of_the_execution_does_not() -> None:
    assert Sample(rate=0.2).fingerprint() != Sample().fingerprint()
    assert Sample(workers=8, name="other").fingerprint() == Sample().fingerprint()


def test_names_of_searches_and_schedulers_are_those_of_the_lists() -> None:
    rows = by_field(SweepSpec)
    assert rows["search"].type == " | ".join(SEARCHES)
    assert rows["scheduler"].type == "none | asha"


def test_a_space_shows_the_forms_of_an_axis() -> None:
    rows = by_field(SweepSpec)
    assert "{log_uniform: 2 × number}" in rows["space"].type
    assert not any(field.startswith("space.") for field in rows)
