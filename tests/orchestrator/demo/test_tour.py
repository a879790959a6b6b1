"""The tour through the results; `-m slow` runs the whole demo. Alone: pytest tests/orchestrator/demo/test_tour.py"""

import sys
from functools import partial
from pathlib import Path
from shlex import split

import pytest

from orchestrator.cli.entry import run_command_line
from orchestrator.demo.demo_data import DemoData
from orchestrator.demo.tour import (
    HEAD_TITLES,
    PICTURE,
    STAGES,
    activation,
    comparison,
    demo_spec,
    next_commands,
    opening,
    run_demo,
)
from orchestrator.execution.runner import run_spec
from orchestrator.registry import Registry
from orchestrator.results import TrialResult
from orchestrator.run_states import RunState
from orchestrator.settings import Settings
from orchestrator.specs import PipelineSpec

SCORES = {("demo/pretraining@1", 1e-3): 0.9, ("demo/pretraining@1", 2e-3): 0.8, ("random", 1e-3): 0.25}


@pytest.mark.heavy
def test_the_spec_reads_the_written_world(data: DemoData) -> None:
    spec = demo_spec(data)
    assert isinstance(spec, PipelineSpec)
    assert list(spec.stages) == ["tokenizer", "pretraining", *HEAD_TITLES]
    assert spec.stages["names"].task.files["train"] == str(data.names["train"])


def test_the_best_recipe_of_each_start_is_compared(tmp_path: Path) -> None:
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        run_id = registry.lifecycle.create(
            kind="sweep", name="names", fingerprint="f", spec={}, task="names", metric="f1"
        )
        trials = [
            TrialResult(
                str(n), n, {"init_from": start, "learning_rate": rate}, RunState.COMPLETED, seed=0, metrics=metrics
            )
            for n, ((start, rate), score) in enumerate(SCORES.items())
            for metrics in [{"f1": score, "baseline.f1": 0.1}]
        ]
        registry.trials.record(run_id, trials)
        (row,) = comparison(registry, {"names": run_id}).to_dict("records")
    assert row["random"] == 0.25
    assert row["pretrained"] == 0.9
    assert row["gain"] == pytest.approx(0.65)
    assert row["baseline"] == 0.1


def test_the_opening_has_a_line_for_each_stage_of_the_pipeline(data: DemoData) -> None:
    assert list(STAGES) == list(demo_spec(data).stages)  # type: ignore[attr-defined]
    lines = opening(Path("home/demo") / PICTURE).splitlines()
    for stage, (duration, what) in STAGES.items():
        assert [duration in line for line in lines if line.split()[:1] == [stage] and line.endswith(what)] == [True]
    assert max(len(line) for line in lines) <= 80
    assert f"  home/demo/{PICTURE}" in lines


def test_the_commands_to_go_on_with_can_be_typed_after_the_demo(data: DemoData) -> None:
    """None names a file that a clone lacks; each says where the demo's runs are."""
    commands = next_commands(dict.fromkeys(STAGES, "7f3a90b1c2d4"), data, " --home 'my things'")
    for command in commands:
        words = split(command.rpartition("| ")[2], comments=True)
        assert words[:3] == ["orchestrator", "--home", "my things"]
        assert run_command_line([*words[1:], "--help"]) == 0
    assert not [command for command in commands if "experiments/" in command]


def test_activation_is_said_where_the_shell_knows_another_orchestrator_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("activate", "orchestrator"):
        (programs / name).touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert activation() == [". venv/bin/activate"]
    monkeypatch.setenv("PATH", str(programs))
    assert activation() == []


@pytest.mark.slow
@pytest.mark.ray
def test_pretraining_helps_every_head_of_the_demo(
    ray_cluster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings.from_options(home=str(tmp_path), environ={})
    assert run_demo(settings, partial(run_spec, settings=settings)) == 0
    with Registry(settings.registry) as registry:
        sweeps = registry.runs("kind = 'sweep'")
        tasks = dict(zip(sweeps["task"], sweeps["id"], strict=True))
        assert (comparison(registry, tasks)["gain"] > 0.1).all()
    assert (tmp_path / "demo" / PICTURE).read_bytes().startswith(b"\x89PNG")
    assert "What pretraining brought" in capsys.readouterr().out
