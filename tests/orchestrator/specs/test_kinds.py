"""The kinds of specs by name: the list agrees with the specs themselves, and loads no class that is not asked for.

Alone: .venv/bin/pytest tests/orchestrator/specs/test_kinds.py
"""

from typing import get_args

import pytest

from orchestrator.specs import AnySpec
from orchestrator.specs.kinds import SPEC_KINDS, spec_class
from tests.orchestrator.cli.fresh_process import loaded_by_each


def test_the_list_of_kinds_is_that_of_the_specs() -> None:
    assert [spec_class(kind) for kind in SPEC_KINDS] == list(get_args(AnySpec))
    assert [spec_class(kind).model_fields["kind"].default for kind in SPEC_KINDS] == list(SPEC_KINDS)


def test_an_unknown_kind_is_none() -> None:
    with pytest.raises(KeyError):
        spec_class("swep")


def test_the_spec_of_a_sweep_is_read_without_the_arrays_of_pretraining() -> None:
    ((status, loaded),) = loaded_by_each([["schema", "sweep"]]).values()
    assert status == 0
    assert "pydantic" in loaded
    assert "numpy" not in loaded
