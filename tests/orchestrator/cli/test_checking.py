"""Command `check`.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_checking.py
"""

import json
from typing import Any

import pytest

from orchestrator.base.results import MetricEvent, ModelResult, TrialStart
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.registry import Registry
from tests.orchestrator.cli.laboratory import Command
from tests.orchestrator.registry.samples import new_run, trial_result

TASK: dict[str, Any] = {"id": "mrpc", "head": None, "folder": "MRPC", "files": {}}
SPEC = {"kind": "sweep", "task": TASK, "recipe": {"init_from": "bert"}}


@pytest.fixture
def tuned(command: Command) -> str:
    """A sweep of MRPC: two recipes, of which the better one has three seeds, with a tiny model, `tiny-mrpc@1`."""
    with Registry(Settings.from_options().registry) as registry:
        run_id = new_run(registry, kind="sweep", name="tiny-mrpc", task="mrpc", metric="f1", spec=SPEC)
        registry.lifecycle.start_attempt(run_id)
        points = [(1e-4, seed, 0.80 + 0.01 * seed) for seed in range(3)] + [(3e-5, 0, 0.70)]
        for number, (rate, seed, score) in enumerate(points):
            parameters = {"recipe.learning_rate": rate, "recipe.seed": seed}
            registry.trials.record(run_id, [TrialStart(f"k{number}", number, parameters, seed)])
            result = trial_result(
                f"k{number}", number=number, parameters=parameters, seed=seed, metrics={"f1": score, "accuracy": 0.7}
            )
            registry.trials.record(run_id, [result])
        registry.metrics.record(run_id, [MetricEvent(1, "validation", {"f1": 0.82, "accuracy": 0.7})], final=True)
        registry.metrics.record(run_id, [MetricEvent(1, "test", {"f1": 0.79})], final=True)
        registry.models.register("tiny-mrpc", ModelResult("/m", "d" * 64, 4_386_178, "classification"), run_id)
        registry.lifecycle.finish(run_id, RunState.COMPLETED)
    return run_id


def test_a_sweep_stands_beside_the_number_of_its_split_score_and_size(command: Command, tuned: str) -> None:
    rows = {(row["split"], row["metric"]): row for row in json.loads(command("check", tuned[:6], "-f", "json").out)}
    assert set(rows) == {("validation", "f1"), ("validation", "accuracy"), ("test", "f1")}
    test = rows["test", "f1"]
    assert (test["model"], test["published"], test["n"]) == ("bert-tiny", 0.811, 1)
    assert (test["difference"], test["noise"]) == (pytest.approx(-0.021), "seed noise not known")
    assert test["why"] == ["published is the best of grid, chosen on the validation split"]
    own = rows["validation", "f1"]
    assert (own["yours"], own["n"], own["published"]) == (pytest.approx(0.81), 3, 0.8885)
    assert (own["model"], own["noise"]) == ("bert-base-cased", "more than seed noise")
    assert "yours is the best of 2 recipes on the split that it is scored on" in own["why"]
    assert "bert-base-cased has 108 M parameters, yours 4.39 M" in own["why"]


@pytest.mark.parametrize("name", ["tiny-mrpc", "tiny-mrpc@1", "mrpc"])
def test_a_model_and_a_task_stand_for_their_runs(command: Command, tuned: str, name: str) -> None:
    assert {row["run"] for row in json.loads(command("check", name, "-f", "json").out)} == {tuned}


def test_where_nothing_was_published_that_is_said(command: Command) -> None:
    with Registry(Settings.from_options().registry) as registry:
        run_id = new_run(registry, kind="sweep", task="own", metric="f1", spec=SPEC)
        registry.lifecycle.start_attempt(run_id)
        registry.metrics.record(run_id, [MetricEvent(1, "validation", {"f1": 0.5})], final=True)
        registry.lifecycle.finish(run_id, RunState.COMPLETED)
    outcome = command("check", run_id)
    assert (outcome.status, outcome.out) == (0, "")
    assert "own f1" in outcome.err


def test_what_is_not_there_is_told(command: Command) -> None:
    outcome = command("check", "nothing")
    assert outcome.status == 3
    assert "nothing" in outcome.err
