"""Completion of words in shells: what is offered for each kind of word, and in bash itself.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_completion.py
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from orchestrator.base.results import ModelResult
from orchestrator.base.settings import Settings
from orchestrator.cli.tree import COMPLETION_VARIABLE, cli
from orchestrator.registry import Registry
from tests.contracts.imports import ROOT
from tests.contracts.walls import EVERYTHING_HEAVY
from tests.orchestrator.cli.laboratory import Command, RecordedSweep
from tests.orchestrator.cli.stranger import write_program
from tests.waiting import PATIENCE_S

SPEC = "kind: sweep\ntask: {id: sst2, folder: data}\n"
FILE, FOLDER = "<file>", "<dir>"


def offered(line: str) -> list[str]:
    """Words that a shell is offered at the end of a line."""
    words = line.split(" ")
    found = ShellComplete(cli, {}, "orchestrator", COMPLETION_VARIABLE).get_completions(words[:-1], words[-1])
    return [item.value if item.type == "plain" else f"<{item.type}>" for item in found]


@pytest.fixture
def spec(home: Path) -> Path:
    path = home.parent / "tiny.yaml"
    path.write_text(SPEC)
    return path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("lea", ["leaderboard"]),
        ("runs li", ["list"]),
        ("runs list --tri", ["--trials"]),
        ("runs list -f j", ["json"]),
        ("schema sw", ["sweep"]),
        ("run experiments/swe", [FILE]),
        ("runs export -o ", [FILE]),
        ("predict x", [FOLDER]),
        ("runs show ", []),
    ],
)
def test_words_are_offered_before_anything_was_run(home: Path, line: str, words: list[str]) -> None:
    assert offered(line) == words
    assert not home.exists()


def test_a_run_is_offered_by_its_first_characters(recorded_sweep: RecordedSweep) -> None:
    assert offered("runs show ") == [recorded_sweep.run_id]
    assert offered(f"runs show {recorded_sweep.trial_ids[1][:8]}") == [recorded_sweep.trial_ids[1]]


def test_models_are_offered_by_name_and_their_versions_after_the_sign(home: Path) -> None:
    with Registry(Settings.from_options().registry) as registry:
        for digest in "ab":
            registry.models.register("minilm", ModelResult("m", digest * 64, 1, "pretraining"))
    assert offered("models show mi") == ["minilm"]
    assert offered("models show minilm@") == ["minilm@2", "minilm@1"]
    assert set(offered("models show minilm")) == {"minilm", "minilm@2", "minilm@1"}


def test_a_leaderboards_task_and_a_runs_measurements_are_those_recorded(recorded_sweep: RecordedSweep) -> None:
    assert offered("leaderboard ") == ["sst2"]
    assert offered("leaderboard --all ") == ["sst2"]
    assert {"sst2", recorded_sweep.run_id} <= set(offered("cost ")) & set(offered("check "))
    assert "accuracy" in offered(f"runs metrics {recorded_sweep.trial_ids[3]} ")
    assert offered(f"runs metrics {recorded_sweep.trial_ids[3]} train.") == ["train.loss"]


def test_overrides_are_offered_for_the_spec_that_was_named(spec: Path) -> None:
    assert offered(f"run {spec} recipe.weight_d") == ["recipe.weight_decay=", "recipe.weight_decay=0.01"]
    assert {"recipe.dropout=", "recipe.epochs="} <= set(offered(f"run {spec} recipe."))
    assert offered(f"run {spec} recipe.learning_rate=") == []
    assert "kind=" not in offered(f"run {spec} ")


def test_overrides_of_a_run_that_goes_on_are_offered(recorded_sweep: RecordedSweep) -> None:
    found = offered(f"resume {recorded_sweep.run_id} ")
    assert found
    assert all(word.startswith(("execution.", "trials=")) for word in found)


def test_an_unreadable_registry_or_spec_offers_nothing(
    home: Path, spec: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    home.mkdir()
    (home / "registry.sqlite").write_text("no database")
    spec.write_text("kind: [")
    assert offered("runs show ") == offered(f"run {spec} re") == offered(f"run {home} re") == []
    assert offered("--registry postgresql://lab:secret@127.0.0.1:1/x runs show ") == []
    assert capfd.readouterr() == ("", "")


def test_a_hostile_name_is_never_offered(home: Path) -> None:
    with Registry(Settings.from_options().registry) as registry:
        registry.models.register("$(touch pwned)", ModelResult("m", "a" * 64, 1, "pretraining"))
        registry.models.register("plain", ModelResult("m", "a" * 64, 1, "pretraining"))
    assert offered("models show ") == ["plain"]


@pytest.mark.parametrize("line", ["runs show ", "runs metrics TRIAL ", "run SPEC recipe."])
@pytest.mark.heavy
def test_a_completion_loads_nothing_heavy(recorded_sweep: RecordedSweep, spec: Path, line: str) -> None:
    words = line.replace("SPEC", str(spec)).replace("TRIAL", recorded_sweep.trial_ids[3]).split(" ")
    code = (
        "import sys; from click.shell_completion import ShellComplete; from orchestrator.cli.tree import cli\n"
        f"assert ShellComplete(cli, {{}}, 'orchestrator', '').get_completions({words[:-1]!r}, {words[-1]!r})\n"
        f"assert not set(sys.modules) & {set(EVERYTHING_HEAVY)!r}"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=PATIENCE_S).returncode == 0


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ru"], ["run", "runs"]),
        (["run", "tiny.yaml", "recipe.bat"], ["recipe.batch_size=", "recipe.batch_size=32"]),
        (["models", "show", "mini"], ["minilm"]),
    ],
)
@pytest.mark.heavy
def test_bash_completes_words_as_it_splits_them(spec: Path, tmp_path: Path, words: list[str], found: list[str]) -> None:
    write_program(tmp_path / "bin")
    with Registry(Settings.from_options().registry) as registry:
        registry.models.register("minilm", ModelResult("m", "a" * 64, 1, "pretraining"))
    code = f"""
        source <(orchestrator completion bash)
        COMP_WORDS=(orchestrator {shlex.join(words)}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _orchestrator_completion orchestrator
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, env=environment)
    assert (done.stdout.splitlines(), done.stderr) == (found, "")


@pytest.mark.parametrize(("shell", "begins"), [("zsh", "#compdef orchestrator"), ("fish", "function _orchestrator")])
def test_the_script_of_a_shell_is_printed(command: Command, shell: str, begins: str) -> None:
    outcome = command("completion", shell)
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.startswith(begins)
