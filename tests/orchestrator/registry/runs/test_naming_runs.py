"""Runs that name something in their specs, but for some of them.

pytest tests/orchestrator/registry/runs/test_naming_runs.py
"""

from orchestrator.registry import Registry
from tests.orchestrator.registry.samples import new_run, trial_result


def test_runs_are_found_by_what_they_and_their_trials_name(registry: Registry) -> None:
    one, other = (new_run(registry, spec={"kind": "pretrain", "init_from": "first@1"}) for _ in range(2))
    listing = new_run(registry, kind="sweep", spec={"kind": "sweep", "space": {"init_from": ["x", "first@1"]}})
    sweep = new_run(registry, kind="sweep", spec={"kind": "sweep", "recipe": {"init_from": "random"}})
    (trial,) = registry.trials.record(sweep, [trial_result(parameters={"init_from": "first@1"})])
    new_run(registry, spec={"kind": "pretrain", "init_from": "second@1", "name": "first@1"})

    def found(*except_of: str) -> set[str]:
        return {run.id for run in registry.runs_naming(["init_from"], ["first@1"], except_of=except_of)}

    assert found() == {one, other, listing, sweep}
    assert found(one, trial) == {other, listing}
