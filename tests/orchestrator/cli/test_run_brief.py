"""`runs show` of each kind of run in a terminal of 80 columns: short, in the order of reading, the rest by `--all`.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_run_brief.py
"""

import pytest

import orchestrator.cli.output
from orchestrator.registry import Registry
from orchestrator.results import TrialStart, WorkersEvent
from orchestrator.run_states import RunState
from orchestrator.settings import Settings
from orchestrator.specs import RecipeSpec
from tests.orchestrator.cli.laboratory import Command
from tests.orchestrator.cli.runs_of_each_kind import add_runs_of_each_kind
from tests.orchestrator.registry.samples import new_run

WIDTH = 80
MOST_LINES = {"pipeline": 30, "tokenizer": 24, "trial": 24, "evaluate": 26, "distill": 30}
"""Lines of kinds whose runs say less than a screen; any other fits a screen of 40 lines."""


@pytest.fixture
def runs(command: Command, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Ids by kind; what is shown of them is as wide as a terminal."""
    monkeypatch.setattr(orchestrator.cli.output, "_terminal_width", lambda output: WIDTH)
    settings = Settings.from_options()
    settings.home.mkdir(parents=True)
    with Registry(settings.registry) as registry:
        return add_runs_of_each_kind(registry)


def joined(shown: str) -> str:
    """Text that is shown, without the breaks of its lines."""
    return " ".join(shown.split())


@pytest.mark.parametrize(
    "kind", ["pipeline", "tokenizer", "pretrain", "sweep", "trial", "evaluate", "distill", "failed"]
)
def test_a_run_fits_a_screen_and_only_what_is_copied_whole_is_wider(
    command: Command, runs: dict[str, str], kind: str
) -> None:
    lines = command("runs", "show", runs[kind]).out.splitlines()
    assert len(lines) <= MOST_LINES.get(kind, 40)
    described = lines[: lines.index("next")]
    assert all(len(line) <= WIDTH or "/home/" in line for line in described)


def test_the_order_is_result_changes_files_next(command: Command, runs: dict[str, str]) -> None:
    shown = command("runs", "show", runs["sweep"]).out
    order = ["state ", "accuracy ", "best trial ", "spec.recipe ", "code ", "folder ", "next\n"]
    places = [shown.index(f"\n{word}") for word in order]
    assert places == sorted(places)
    assert "learning_rate=0.002" in shown
    assert "192 cores" not in shown


def test_a_pipelines_stages_have_a_line_each_in_brief_and_whole(command: Command, runs: dict[str, str]) -> None:
    line = f"{runs['sweep']} sweep COMPLETED, accuracy 0.8900"
    assert line in command("runs", "show", runs["pipeline"]).out
    assert line in joined(command("runs", "show", runs["pipeline"], "--all").out)


def test_of_many_stages_those_that_did_not_complete_and_the_newest_are_shown(
    command: Command, runs: dict[str, str]
) -> None:
    tags = [f"pipeline:{runs['pipeline']}"]
    with Registry(Settings.from_options().registry) as registry:
        for number in range(30):
            new_run(registry, name=f"demo/variant{number}", tags=tags)
        for stage in registry.stages(runs["pipeline"])[1:30]:
            registry.lifecycle.start_attempt(stage.id)
            registry.lifecycle.finish(stage.id, RunState.COMPLETED)
    shown = command("runs", "show", runs["pipeline"]).out
    assert len(shown.splitlines()) < 30
    assert "stages  " in shown
    assert " PENDING" in shown


def test_what_is_left_out_is_there_with_all(command: Command, runs: dict[str, str]) -> None:
    shown = command("runs", "show", runs["pretrain"]).out
    whole = joined(command("runs", "show", runs["pretrain"], "--all").out)
    for only_whole in ("train.mlm_loss", "192 cores", "process 4711", "params.steps"):
        assert only_whole not in shown
        assert only_whole in whole


def test_hosts_of_workers_are_told_where_there_were_several(command: Command, runs: dict[str, str]) -> None:
    assert "attempt.1" not in command("runs", "show", runs["pretrain"]).out
    with Registry(Settings.from_options().registry) as registry:
        registry.lifecycle.record_workers(runs["pretrain"], 1, [WorkersEvent(0, ["a", "b"])])
    assert "2 workers on a, b" in joined(command("runs", "show", runs["pretrain"]).out)


def test_a_failed_run_says_why_where_it_was_and_how_to_go_on(command: Command, runs: dict[str, str]) -> None:
    shown = command("runs", "show", runs["failed"]).out
    assert "CUDA out of memory" in shown
    assert "FAILED: process 4711 on head-0.cluster.example" in shown
    assert f"next\n  orchestrator resume {runs['failed']}\n  orchestrator runs logs {runs['failed']}\n" in shown


def test_tags_that_serve_the_laboratory_alone_stand_in_the_whole_record_only(
    command: Command, runs: dict[str, str]
) -> None:
    tag = f"inputs:{'a' * 64}"
    with Registry(Settings.from_options().registry) as registry:
        registry.tag(runs["sweep"], tag, "night")
    shown = command("runs", "show", runs["sweep"]).out
    assert "night" in shown
    assert "inputs:" not in shown
    assert tag in joined(command("runs", "show", runs["sweep"], "-f", "json").out)


def test_of_a_trials_recipe_what_differs_from_the_defaults_is_shown(command: Command, runs: dict[str, str]) -> None:
    recipe = RecipeSpec(learning_rate=3e-4, max_seq_length=64).model_dump(mode="json")
    with Registry(Settings.from_options().registry) as registry:
        (trial,) = registry.trials.record(runs["sweep"], [TrialStart("k", 9, recipe, 0)])
    shown = command("runs", "show", trial).out
    (line,) = [line for line in shown.splitlines() if line.startswith("spec ")]
    assert line.split()[1:] == ["learning_rate=0.0003", "max_seq_length=64"]
