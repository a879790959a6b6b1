"""`runs show`: short, in the order of reading; the rest by `--all`.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_run_brief.py
"""

from pathlib import Path

import pytest

from orchestrator.base.results import MetricEvent, TrialResult, TrialStart, WorkersEvent
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder
from orchestrator.specs import RecipeSpec
from tests.orchestrator.cli.laboratory import Command, RecordedSweep


def test_a_sweep_is_shown_by_result_changes_files_next(command: Command, recorded_sweep: RecordedSweep) -> None:
    shown = command("runs", "show", recorded_sweep.run_id).out
    places = [shown.index(f"\n{name} ") for name in ("state", "accuracy", "best trial", "spec.recipe", "folder")]
    assert places == sorted(places)
    assert "learning_rate=0.0003" in shown
    whole = command("runs", "show", recorded_sweep.run_id, "--all").out
    for only_whole in ("recipe.max_seq_length", "params.task.id"):
        assert only_whole not in shown
        assert only_whole in whole


def test_a_running_pipeline_is_shown_with_how_far_its_stages_are_and_how_to_follow_it(
    command: Command, recorded_sweep: RecordedSweep
) -> None:
    with Registry(Settings.from_options().registry) as registry:
        recorder = Recorder(registry)
        pipeline = recorder.start({"kind": "pipeline", "name": "all"}, "f").id
        stages = (
            {"kind": kind, "name": f"all/{kind}", "tags": [f"pipeline:{pipeline}"]} for kind in ("pretrain", "sweep")
        )
        words, tuning = (recorder.start(stage, "f").id for stage in stages)
        recorder.record_events(words, [MetricEvent(40, "train", {"mlm_loss": 5.0})])
        trials = [TrialStart("a", 0, {}, 0), TrialResult("b", 1, {}, RunState.COMPLETED, 1, metrics={"f1": 0.5})]
        registry.trials.record(tuning, trials)
    shown = command("runs", "show", pipeline).out
    assert f"{words} pretrain RUNNING, step 40" in shown
    assert f"{tuning} sweep RUNNING, 1 of 2 trials ended" in shown
    assert [f"orchestrator {verb}" in shown for verb in (f"runs logs {pipeline} --follow", f"stop {pipeline}")] == [
        True,
        True,
    ]


def test_hosts_of_workers_are_told_where_there_were_several(command: Command, home: object) -> None:
    with Registry(Settings.from_options().registry) as registry:
        recorder = Recorder(registry)
        run = recorder.start({"kind": "pretrain", "name": "small"}, "f")
        recorder.record_events(run.id, [WorkersEvent(0, ["a", "b"])])
    assert "2 workers on a, b" in command("runs", "show", run.id).out


def test_of_a_trials_recipe_what_differs_from_the_defaults_is_shown(
    command: Command, recorded_sweep: RecordedSweep
) -> None:
    recipe = RecipeSpec(learning_rate=3e-4, max_seq_length=64).model_dump(mode="json")
    with Registry(Settings.from_options().registry) as registry:
        (trial,) = registry.trials.record(recorded_sweep.run_id, [TrialStart("k", 9, recipe, 0)])
    (line,) = [line for line in command("runs", "show", trial).out.splitlines() if line.startswith("spec ")]
    assert line.split()[1:] == ["learning_rate=0.0003", "max_seq_length=64"]


REASON = "the model was chosen on the test data"


@pytest.fixture
def sweep(recorded_sweep: RecordedSweep) -> str:
    """Id of a sweep with a test score, whose test data are its validation data."""
    with Registry(Settings.from_options().registry) as registry:
        registry.trials.set_data(recorded_sweep.run_id, {"validation": "v", "test": "v"})
    return recorded_sweep.run_id


def test_a_refused_test_score_is_told_by_the_run_and_beside_another(
    command: Command, sweep: str, recorded_sweep: RecordedSweep
) -> None:
    assert f"0.8000 (refused: {REASON})" in " ".join(command("runs", "show", sweep).out.split())
    assert REASON in " ".join(command("runs", "show", sweep, "--all").out.split())
    difference = command("compare", sweep, recorded_sweep.trial_ids[0]).out
    assert f"The test score of {sweep} is refused: {REASON}." in difference


def test_a_model_card_tells_it(command: Command, recorded_sweep: RecordedSweep) -> None:
    best = recorded_sweep.trial_ids[3]
    with Registry(Settings.from_options().registry) as registry:
        registry.trials.set_data(best, {"validation": "v", "test": "v"})
        (model,) = registry.models.of_run(recorded_sweep.run_id)
    assert command("models", "show", model.label, "-o", "card.md").status == 0
    assert f"The test score is refused: {REASON}." in Path("card.md").read_text()


def test_a_query_that_shows_test_scores_names_refused_ones(command: Command, sweep: str) -> None:
    outcome = command("query", "metrics.test.accuracy > 0.1")
    assert f"the test score of 1 run is refused, as {REASON}: {sweep}" in outcome.err
    assert "refused" not in command("query", "metrics.accuracy > 0.1").err
