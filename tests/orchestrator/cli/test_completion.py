"""Completion of words in shells: what is offered for each kind of word, and bash, zsh and fish themselves.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_completion.py
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from orchestrator.cli.commands.completing import COMPLETION_VARIABLE
from orchestrator.cli.entry import cli
from orchestrator.registry import Registry
from orchestrator.results import ModelResult
from orchestrator.settings import Settings
from tests.contracts.imports import ROOT
from tests.contracts.walls import EVERYTHING_HEAVY
from tests.orchestrator.cli.laboratory import Command, RecordedSweep
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
        ("runs list --reg", ["--registry"]),
        ("runs list -f j", ["json"]),
        ("schema sw", ["sweep"]),
        ("evaluate x conll", ["conll2003"]),
        ("run experiments/swe", [FILE]),
        ("runs export -o ", [FILE]),
        ("predict x", [FOLDER]),
        ("runs show ", []),
        ("query st", ["state", "started_at"]),
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


def test_a_leaderboards_task_and_a_runs_measurements_are_those_recorded(recorded_sweep: RecordedSweep) -> None:
    assert offered("leaderboard ") == ["sst2"]
    assert offered("groups list ") == ["sst2"]
    assert {"sst2", recorded_sweep.run_id} <= set(offered("cost ")) & set(offered("check "))
    assert "accuracy" in offered(f"runs metrics {recorded_sweep.trial_ids[3]} ")
    assert offered(f"runs metrics {recorded_sweep.trial_ids[3]} train.") == ["train.loss"]
    assert "params.learning_rate" in offered("query params.learn")
    assert offered("runs export -o runs.csv --where metrics.acc") == ["metrics.accuracy"]
    assert offered("query (metrics.acc") == ["(metrics.accuracy"]


def test_overrides_are_offered_for_the_spec_that_was_named(spec: Path) -> None:
    assert offered(f"run {spec} recipe.learning_r") == ["recipe.learning_rate="]
    assert offered(f"run {spec} recipe.precision=") == ["recipe.precision=fp32", "recipe.precision=bf16"]
    assert offered(f"run {spec} recipe.freeze_encoder=t") == ["recipe.freeze_encoder=true"]
    assert offered(f"run {spec} recipe.learning_rate=") == []
    assert "kind=" not in offered(f"run {spec} ")


def test_overrides_of_a_stage_and_of_a_base_are_offered(home: Path, spec: Path) -> None:
    pipeline = home.parent / "pipeline.yaml"
    pipeline.write_text("kind: pipeline\nstages:\n  second: {extends: tiny.yaml}\n")
    assert offered(f"plan {pipeline} stages.second.search=h") == ["stages.second.search=halton"]


def test_overrides_of_a_task_and_of_a_run_that_goes_on_are_offered(recorded_sweep: RecordedSweep) -> None:
    assert offered("evaluate m sst2 fold") == ["folder="]
    found = offered(f"resume {recorded_sweep.run_id} ")
    assert found
    assert all(word.startswith(("execution.", "budget")) for word in found)


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


@pytest.mark.parametrize("line", ["runs show ", "runs metrics TRIAL ", "leaderboard ", "run SPEC recipe.", "mine m "])
def test_a_completion_loads_nothing_heavy(recorded_sweep: RecordedSweep, spec: Path, line: str) -> None:
    words = line.replace("SPEC", str(spec)).replace("TRIAL", recorded_sweep.trial_ids[3]).split(" ")
    code = (
        "import sys; from click.shell_completion import ShellComplete; from orchestrator.cli.entry import cli\n"
        f"assert ShellComplete(cli, {{}}, 'orchestrator', '').get_completions({words[:-1]!r}, {words[-1]!r})\n"
        f"assert not set(sys.modules) & {set(EVERYTHING_HEAVY)!r}"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=PATIENCE_S).returncode == 0


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """A folder for PATH with this project's `orchestrator` in it."""
    script = tmp_path / "bin" / "orchestrator"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'from orchestrator.cli import main; main()' \"$@\"\n")
    script.chmod(0o755)
    return script.parent


def in_shell(shell: str, code: str, bin_folder: Path) -> list[str]:
    """Lines that a shell prints after it has read its completion script."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([found, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, env=environment)
    assert done.stderr == ""
    return done.stdout.splitlines()


def bash(line: str, words: list[str], bin_folder: Path) -> list[str]:
    """Words that bash would put in the place of a line's last word, given how it splits the line."""
    code = f"""
        source <(orchestrator completion bash)
        COMP_LINE={shlex.quote(line)}; COMP_POINT=${{#COMP_LINE}}
        COMP_WORDS=({shlex.join(words)}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        compopt() {{ printf 'compopt %s %s\\n' "$1" "$2"; }}
        complete -p orchestrator
        _orchestrator_completion orchestrator
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    registered, *rest = in_shell("bash", code, bin_folder)
    assert registered == "complete -o nosort -F _orchestrator_completion orchestrator"
    return rest


@pytest.mark.parametrize(
    ("line", "words", "found"),
    [
        ("orchestrator ru", ["orchestrator", "ru"], ["run", "runs"]),
        ("orchestrator run tiny.yaml ", ["orchestrator", "run", "tiny.yaml", ""], None),
        (
            "orchestrator run tiny.yaml recipe.bat",
            ["orchestrator", "run", "tiny.yaml", "recipe.bat"],
            ["compopt -o nospace", "recipe.batch_size="],
        ),
        (
            "orchestrator run tiny.yaml recipe.precision=b",
            ["orchestrator", "run", "tiny.yaml", "recipe.precision", "=", "b"],
            ["bf16"],
        ),
        ("orchestrator models show minilm@", ["orchestrator", "models", "show", "minilm", "@", ""], ["@1"]),
        ("orchestrator predict ./fol", ["orchestrator", "predict", "./fol"], ["compopt -o dirnames", ""]),
    ],
)
def test_bash_completes_words_as_it_splits_them(
    spec: Path, bin_folder: Path, line: str, words: list[str], found: list[str] | None
) -> None:
    with Registry(Settings.from_options().registry) as registry:
        registry.models.register("minilm", ModelResult("m", "a" * 64, 1, "pretraining"))
    lines = bash(line, words, bin_folder)
    if found is None:
        assert "task.folder=" in lines
    else:
        assert lines == found


@pytest.mark.parametrize(
    ("shell", "code", "begins"),
    [
        (
            "zsh",
            "autoload -U compinit; compinit -u -D; source <(orchestrator completion zsh); echo $_comps[orchestrator]",
            "_orchestrator_completion",
        ),
        ("fish", "orchestrator completion fish | source; complete -C 'orchestrator runs li'", "list"),
    ],
)
def test_another_shell_reads_its_script(shell: str, code: str, begins: str, bin_folder: Path) -> None:
    (line,) = in_shell(shell, code, bin_folder)
    assert line.startswith(begins)


@pytest.mark.parametrize(("shell", "begins"), [("zsh", "#compdef orchestrator"), ("fish", "function _orchestrator")])
def test_the_script_of_a_shell_is_printed(command: Command, shell: str, begins: str) -> None:
    outcome = command("completion", shell)
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.startswith(begins)


def test_an_unknown_shell_is_refused_with_the_known_ones(command: Command) -> None:
    outcome = command("completion", "tcsh")
    assert outcome.status == 2
    assert "'bash', 'zsh', 'fish'" in outcome.err
