"""`runs show`: short, in the order of reading; the rest by `--all`.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_run_brief.py
"""

from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder
from orchestrator.results import TrialStart, WorkersEvent
from orchestrator.run_states import RunState
from orchestrator.settings import Settings
from orchestrator.specs import RecipeSpec
from tests.orchestrator.cli.laboratory import Command, RecordedSweep
from tests.orchestrator.registry.samples import new_run


def test_a_sweep_is_shown_by_result_changes_files_next(command: Command, recorded_sweep: RecordedSweep) -> None:
    shown = command("runs", "show", recorded_sweep.run_id).out
    places = [shown.index(f"\n{name} ") for name in ("state", "accuracy", "best trial", "spec.recipe", "folder")]
    assert places == sorted(places)
    assert "learning_rate=0.0003" in shown
    whole = command("runs", "show", recorded_sweep.run_id, "--all").out
    for only_whole in ("recipe.max_seq_length", "params.task.id"):
        assert only_whole not in shown
        assert only_whole in whole


def test_of_many_stages_those_that_did_not_complete_are_shown(command: Command, home: object) -> None:
    with Registry(Settings.from_options().registry) as registry:
        pipeline = Recorder(registry).start({"kind": "pipeline", "name": "demo"}, "f").id
        for number in range(30):
            stage = new_run(registry, name=f"demo/variant{number}", tags=[f"pipeline:{pipeline}"])
            if number != 3:
                registry.lifecycle.start_attempt(stage)
                registry.lifecycle.finish(stage, RunState.COMPLETED)
    shown = command("runs", "show", pipeline).out
    assert len(shown.splitlines()) < 30
    assert " PENDING" in shown


def test_hosts_of_workers_are_told_where_there_were_several(command: Command, home: object) -> None:
    with Registry(Settings.from_options().registry) as registry:
        recorder = Recorder(registry)
        run = recorder.start({"kind": "pretrain", "name": "small"}, "f")
        recorder.record_events(run.id, [WorkersEvent(0, ["a", "b"])])
    assert "2 workers on a, b" in command("runs", "show", run.id).out


def test_tags_that_serve_the_laboratory_alone_are_not_shown(command: Command, recorded_sweep: RecordedSweep) -> None:
    tag = f"inputs:{'a' * 64}"
    with Registry(Settings.from_options().registry) as registry:
        registry.tag(recorded_sweep.run_id, tag, "night")
    shown = command("runs", "show", recorded_sweep.run_id).out
    assert "night" in shown
    assert "inputs:" not in shown
    assert tag in command("runs", "show", recorded_sweep.run_id, "-f", "json").out


def test_of_a_trials_recipe_what_differs_from_the_defaults_is_shown(
    command: Command, recorded_sweep: RecordedSweep
) -> None:
    recipe = RecipeSpec(learning_rate=3e-4, max_seq_length=64).model_dump(mode="json")
    with Registry(Settings.from_options().registry) as registry:
        (trial,) = registry.trials.record(recorded_sweep.run_id, [TrialStart("k", 9, recipe, 0)])
    (line,) = [line for line in command("runs", "show", trial).out.splitlines() if line.startswith("spec ")]
    assert line.split()[1:] == ["learning_rate=0.0003", "max_seq_length=64"]
