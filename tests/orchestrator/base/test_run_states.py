"""States of runs: which are final, derived or for trials only, and which may follow which.

pytest tests/orchestrator/base/test_run_states.py
"""

import json
import pickle
from itertools import product

import pytest

from orchestrator.base.run_states import RunState

ALLOWED = {
    "PENDING": {"RUNNING", "COMPLETED", "FAILED", "STOPPED", "PRUNED"},
    "RUNNING": {"RUNNING", "COMPLETED", "FAILED", "STOPPED", "PRUNED"},
    "LOST": {"RUNNING", "COMPLETED", "FAILED", "STOPPED", "PRUNED"},
    "FAILED": {"RUNNING", "COMPLETED", "PRUNED"},
    "STOPPED": {"RUNNING", "COMPLETED", "PRUNED"},
    "PRUNED": {"COMPLETED"},
    "COMPLETED": set[str](),
}


@pytest.mark.parametrize(("old", "new"), list(product(RunState, RunState)))
def test_a_state_may_become_those_of_the_table_and_no_other(old: RunState, new: RunState) -> None:
    assert old.may_become(new) == (new in ALLOWED[old])


def test_the_ends_are_final() -> None:
    assert {state for state in RunState if state.is_final} == {"COMPLETED", "FAILED", "STOPPED", "PRUNED"}


def test_lost_is_derived_and_nothing_is_put_into_it() -> None:
    assert [state for state in RunState if state.is_derived] == ["LOST"]
    assert not any(state.may_become(RunState.LOST) for state in RunState)


@pytest.mark.parametrize("state", list(RunState))
def test_a_state_is_its_name_as_text_in_json_and_after_pickling(state: RunState) -> None:
    assert (str(state), f"{state}", json.dumps(state)) == (state.name, state.name, f'"{state.name}"')
    assert RunState(json.loads(json.dumps(state))) is state
    assert pickle.loads(pickle.dumps(state)) is state
