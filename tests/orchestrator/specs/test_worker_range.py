"""Numbers of workers: one or a range, also overridden. Alone: pytest tests/orchestrator/specs/test_worker_range.py"""

from typing import Any

import pytest

from orchestrator.errors import SpecError
from orchestrator.specs import ExecutionSpec, PretrainSpec
from orchestrator.specs.execution_overrides import execution_changes, override_execution
from orchestrator.specs.loading import parse_spec, spec_values

PRETRAIN: dict[str, Any] = {"kind": "pretrain", "corpus": {"files": ["a.txt"]}, "tokenizer": "words", "steps": 10}


def parse(num_workers: object, **values: object) -> PretrainSpec:
    spec = parse_spec({**PRETRAIN, **values, "execution": {"num_workers": num_workers}})
    assert isinstance(spec, PretrainSpec)
    return spec


def sizes(execution: ExecutionSpec) -> tuple[int, int, bool]:
    return execution.min_workers, execution.max_workers, execution.is_elastic


@pytest.mark.parametrize(
    ("num_workers", "expected"),
    [(3, (3, 3, False)), ({"min": 2, "max": 8}, (2, 8, True)), ({"min": 2, "max": 2}, (2, 2, False))],
)
def test_a_number_and_a_range_are_the_fewest_and_the_most(num_workers: object, expected: tuple[int, int, bool]) -> None:
    spec = parse(num_workers)
    assert sizes(spec.execution) == expected
    assert parse_spec(spec_values(spec)) == spec
    assert spec.fingerprint() == parse(1).fingerprint()


@pytest.mark.parametrize(
    ("num_workers", "message"),
    [
        ({"min": 9, "max": 8}, "num_workers min 9"),
        ({"min": 2}, "num_workers.max"),
        ({"min": 0, "max": 2}, "num_workers.min"),
        ({"min": 1, "most": 2}, "num_workers.most"),
        ("two", "num_workers is 'two'"),
        (0, "num_workers is 0"),
        ({"min": 1, "max": 300}, "global_batch_size 256"),
    ],
)
def test_what_is_no_number_of_workers_says_why(num_workers: object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse(num_workers)


def test_any_batch_of_an_example_for_each_worker_can_be_shared() -> None:
    assert parse(3, global_batch_size=4).execution.num_workers == 3


@pytest.mark.parametrize(
    ("num_workers", "override", "expected"),
    [
        (1, "execution.num_workers={min: 2, max: 8}", (2, 8, True)),
        ({"min": 2, "max": 8}, "execution.num_workers.min=3", (3, 8, True)),
        ({"min": 2, "max": 8}, "execution.num_workers={max: 4}", (2, 4, True)),
        ({"min": 2, "max": 8}, "execution.num_workers=4", (4, 4, False)),
    ],
)
def test_an_override_sets_a_number_a_range_or_an_end_of_it(
    num_workers: object, override: str, expected: tuple[int, int, bool]
) -> None:
    spec = parse(num_workers)
    changed = override_execution(spec, [override])
    assert isinstance(changed, PretrainSpec)
    assert sizes(changed.execution) == expected
    assert len(list(execution_changes(spec, changed))) == 1
