"""Overrides of another attempt, in every kind; numbers of workers, one or a range.

Alone: pytest tests/orchestrator/specs/test_execution_overrides.py
"""

from typing import Any

import pytest

from orchestrator.base.errors import SpecError
from orchestrator.specs import ExecutionSpec, PretrainSpec
from orchestrator.specs.execution_overrides import adds_points, execution_changes, override_execution
from orchestrator.specs.fields import differences
from orchestrator.specs.loading import parse_spec, spec_values

PRETRAIN: dict[str, Any] = {"kind": "pretrain", "corpus": {"files": ["a.txt"]}, "tokenizer": "words", "steps": 10}
SWEEP: dict[str, Any] = {"kind": "sweep", "task": {"id": "sst2", "folder": "d"}, "recipe": {"tokenizer": "words"}}
SPECS: dict[str, dict[str, Any]] = {
    "pretrain": PRETRAIN,
    "sweep": SWEEP,
    "corpus": {"kind": "corpus", "corpus": {"files": ["a.txt"]}, "tokenizer": "words"},
    "distill": {"kind": "distill", "teacher": "big", "pretraining": PRETRAIN},
    "evaluate": {"kind": "evaluate", "model": "m", "task": {"id": "sst2", "folder": "d"}},
    "pipeline": {"kind": "pipeline", "stages": {"model.small": PRETRAIN, "task": SWEEP}},
}


@pytest.mark.parametrize(
    ("kind", "override", "change"),
    [
        ("pretrain", "execution.num_workers=2", "1 → 2"),
        ("pretrain", "execution.checkpoint_every_minutes=null", "10.0 → nothing"),
        ("sweep", "execution.max_concurrent_trials=3", "nothing → 3"),
        ("corpus", "num_cpus=3", "nothing → 3"),
        ("distill", "pretraining.execution.num_workers=2", "1 → 2"),
        ("evaluate", "batch_size=8", "64 → 8"),
        ("pipeline", "stages.model.small.execution.num_workers=2", "1 → 2"),
    ],
)
def test_an_execution_field_of_any_kind_changes_alone(kind: str, override: str, change: str) -> None:
    spec = parse_spec(SPECS[kind])
    changed = override_execution(spec, [override])
    found = [(".".join(path), text) for path, text in differences(spec_values(spec), spec_values(changed))]
    assert found == [(override.partition("=")[0], change)]
    assert changed.fingerprint() == spec.fingerprint()


def test_null_takes_a_label_of_nodes_away() -> None:
    spec = parse_spec({**PRETRAIN, "execution": {"node_labels": {"market": "spot", "zone": "a"}}})
    changed = override_execution(spec, ["execution.node_labels.market=null"])
    assert spec_values(changed)["execution"]["node_labels"] == {"zone": "a"}


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("pretrain", "steps"),
        ("pretrain", "model.num_hidden_layers"),
        ("sweep", "recipe.epochs"),
        ("distill", "pretraining.steps"),
        ("pipeline", "stages.model.small.steps"),
        ("pipeline", "stages.task.name"),
    ],
)
def test_a_field_that_shapes_the_result_is_refused_by_name(kind: str, key: str) -> None:
    with pytest.raises(SpecError, match=rf"{key}: .* cannot change"):
        override_execution(parse_spec(SPECS[kind]), [f"{key}='5'" if key.endswith("name") else f"{key}=5"])


@pytest.mark.parametrize("key", ["stages.model.execution.num_workers", "stages.other.steps", "stages.model"])
def test_a_stage_that_is_not_there_is_told_with_those_that_are(key: str) -> None:
    with pytest.raises(SpecError, match=rf"{key} names no stage.*model\.small, task"):
        override_execution(parse_spec(SPECS["pipeline"]), [f"{key}=5"])


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("name=other", "name: .* cannot change"),
        ("tags=[a]", "tags: .* cannot change"),
        ("execution.num_worker=2", "did you mean num_workers"),
        ("execution.num_workers=0", "execution.num_workers"),
        ("nonsense", "nonsense"),
    ],
)
def test_what_cannot_be_set_is_named(override: str, named: str) -> None:
    with pytest.raises(SpecError, match=named):
        override_execution(parse_spec(PRETRAIN), [override])


SEARCH: dict[str, Any] = {**SWEEP, "search": "random", "trials": 4, "space": {"dropout": {"uniform": [0.0, 0.5]}}}


def test_a_search_may_have_more_points() -> None:
    spec = parse_spec(SEARCH)
    changed = override_execution(spec, ["trials=9"])
    assert adds_points(spec, changed)
    assert changed.fingerprint() == parse_spec({**SEARCH, "trials": 9}).fingerprint()
    assert not adds_points(spec, override_execution(spec, ["trials=4", "execution.max_failures=3"]))


@pytest.mark.parametrize(
    ("values", "override", "named"),
    [
        (SEARCH, "trials=3", "the sweep has 4 points"),
        (SEARCH, "trials=null", "trials"),
        ({**SEARCH, "search": "grid", "space": {"dropout": [0.1]}}, "trials=null", "the sweep has 4 points"),
        (SWEEP, "trials=9", "the grid has tried all"),
        (SPECS["pipeline"], "stages.task.trials=9", "trials: .* cannot change"),
    ],
)
def test_points_that_are_there_stay(values: dict[str, Any], override: str, named: str) -> None:
    with pytest.raises(SpecError, match=named):
        override_execution(parse_spec(values), [override])


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
