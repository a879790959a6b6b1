"""Commands `check` and `published list`.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_checking.py
"""

import json
from typing import Any

import pytest

from orchestrator.registry import Registry
from orchestrator.results import MetricEvent, ModelResult, TrialStart
from orchestrator.run_states import RunState
from orchestrator.settings import Settings
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
    assert (test["difference"], test["noise"]) == (pytest.approx(-0.021), "one seed: noise not known")
    assert test["why"] == ["published is the best of grid, chosen on the validation split"]
    own = rows["validation", "f1"]
    assert (own["yours"], own["n"], own["published"]) == (pytest.approx(0.81), 3, 0.8885)
    assert (own["model"], own["noise"]) == ("bert-base-cased", "more than seed noise")
    assert "yours is the best of 2 recipes on the split that it is scored on" in own["why"]
    assert "bert-base-cased has 108 M parameters, yours 4.39 M" in own["why"]


@pytest.mark.parametrize("name", ["tiny-mrpc", "tiny-mrpc@1", "mrpc"])
def test_a_model_and_a_task_stand_for_their_runs(command: Command, tuned: str, name: str) -> None:
    assert {row["run"] for row in json.loads(command("check", name, "-f", "json").out)} == {tuned}


def test_the_reasons_stand_below_the_table(command: Command, tuned: str) -> None:
    outcome = command("check", tuned)
    assert "bert-tiny (test, Turc et al. 2019" in outcome.err
    assert "chosen on the validation split" in outcome.err
    assert len(command("check", tuned, "--all").out.splitlines()) > len(outcome.out.splitlines())


def test_where_nothing_was_published_that_is_said(command: Command) -> None:
    with Registry(Settings.from_options().registry) as registry:
        run_id = new_run(registry, kind="sweep", task="own", metric="f1", spec=SPEC)
        registry.lifecycle.start_attempt(run_id)
        registry.metrics.record(run_id, [MetricEvent(1, "validation", {"f1": 0.5})], final=True)
        registry.lifecycle.finish(run_id, RunState.COMPLETED)
    outcome = command("check", run_id)
    assert (outcome.status, outcome.out) == (0, "")
    assert "no published number for own; there are some for beir, cola, conll2003" in outcome.err


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, "no run of sst2 has a score on a task's data"),
        ({"macro_f1": 0.5}, "for sst2 are of accuracy, of which no run here has a score; recorded: macro_f1"),
    ],
)
def test_a_run_without_a_comparable_score_is_no_task_without_numbers(
    command: Command, values: dict[str, float], problem: str
) -> None:
    with Registry(Settings.from_options().registry) as registry:
        run_id = new_run(registry, kind="sweep", task="sst2", metric="accuracy", spec=SPEC)
        registry.lifecycle.start_attempt(run_id)
        registry.metrics.record(run_id, [MetricEvent(1, "validation", values)], final=True)
        registry.lifecycle.finish(run_id, RunState.COMPLETED)
    outcome = command("check", "sst2")
    assert (outcome.status, outcome.out) == (0, "")
    assert problem in outcome.err
    assert "no published number for sst2" not in outcome.err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["check", "mrpc"], "no run of mrpc has completed here; `orchestrator published list --task mrpc`"),
        (["check", "nothing"], "'nothing' is no run, model or task here"),
        (["published", "list", "--task", "own"], "no published number for task own; there are some for"),
    ],
)
def test_what_is_not_there_is_told(command: Command, arguments: list[str], problem: str) -> None:
    outcome = command(*arguments)
    assert outcome.status == 3
    assert problem in outcome.err


def test_numbers_are_listed_with_their_sources(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = json.loads(command("published", "list", "--task", "squad", "--model", "distilb", "-f", "json").out)
    assert [(row["metric"], row["value"], row["model"]) for row in rows] == [("f1", 0.869, "distilbert-base-uncased")]
    assert rows[0]["url"].startswith("https://github.com/huggingface/")
    piped = command("published", "list", "--task", "sst2")
    assert "bert-tiny" in piped.out
    assert "Turc et al. 2019" in piped.out
    monkeypatch.setattr("orchestrator.cli.commands.checking.is_terminal", lambda stream: True)
    brief = command("published", "list", "--task", "sst2", "--limit", "2")
    assert "Turc" not in brief.out
    assert brief.err.count("] ") == 1, "each source of a row that is shown, once, below the table"
    assert "Turc" in command("published", "list", "--task", "sst2", "--columns", "model,source").out
    assert command("published", "list", "sst2").out == command("published", "list", "--task", "sst2").out
    assert command("published", "list", "sst2", "--task", "mrpc").status == 2
    assert command("published", "list", "--task", "SST2").out == command("published", "list", "--task", "sst2").out


def test_a_narrow_list_of_published_numbers_says_what_it_leaves_out(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.cli.output._terminal_width", lambda output: 80)
    monkeypatch.setattr("orchestrator.cli.commands.checking.is_terminal", lambda stream: True)
    outcome = command("published", "list", "cola")
    assert outcome.out.split("\n")[0].split() == ["task", "split", "metric", "value", "model", "source"]
    assert "left out: runs, chosen, note; --columns runs,chosen,note shows these, --wide all\n" in outcome.err


def test_of_several_runs_a_narrow_table_keeps_which_is_which(
    command: Command, tuned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Registry(Settings.from_options().registry) as registry:
        other = new_run(registry, name="again", task="mrpc", metric="f1", spec=SPEC)
        registry.lifecycle.start_attempt(other)
        registry.metrics.record(other, [MetricEvent(1, "validation", {"f1": 0.82})], final=True)
        registry.lifecycle.finish(other, RunState.COMPLETED)
    monkeypatch.setattr("orchestrator.cli.output._terminal_width", lambda output: 80)
    outcome = command("check", "mrpc")
    assert other in outcome.out
    assert tuned in outcome.out
    assert "left out: n, source, difference" in outcome.err
