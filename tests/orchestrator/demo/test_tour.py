"""The tour, its picture; `-m slow` runs the whole demo. Alone: pytest tests/orchestrator/demo/test_tour.py"""

import sys
from functools import partial
from io import StringIO
from pathlib import Path
from shlex import split

import pandas
import pytest
from rich.console import Console

from orchestrator.base.results import TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.cli.entry import run_command_line
from orchestrator.demo.demo_data import DemoData
from orchestrator.demo.tour import (
    HEAD_TITLES,
    PICTURE,
    STAGES,
    activation,
    comparison,
    demo_spec,
    draw_findings,
    next_commands,
    opening,
    run_demo,
    show_picture,
)
from orchestrator.execution.runner import run_spec
from orchestrator.registry import Registry
from orchestrator.specs import PipelineSpec

pytestmark = [pytest.mark.heavy, pytest.mark.core]
SCORES = {("demo/pretraining@1", 1e-3): 0.9, ("demo/pretraining@1", 2e-3): 0.8, ("random", 1e-3): 0.25}


def test_the_spec_reads_the_written_world(data: DemoData) -> None:
    spec = demo_spec(data)
    assert isinstance(spec, PipelineSpec)
    assert list(spec.stages) == ["tokenizer", "pretraining", *HEAD_TITLES]
    assert spec.stages["names"].task.files["train"] == str(data.tasks["names"]["train"])


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


HEADS = (("kinds", "classification", 0.125, 0.47, 0.907), ("names", "NER", 0.0, 0.118, 0.945))


def findings() -> tuple[pandas.DataFrame, pandas.DataFrame]:
    keys = ("task", "head", "baseline", "random", "pretrained")
    rows = [{"metric": "f1", **dict(zip(keys, head, strict=True))} for head in HEADS]
    points = [
        {"split": split, "name": name, "step": step, "value": value / step}
        for split in ("train", "validation")
        for name, value in (("mlm_loss", 500.0), ("nsp_accuracy", 150.0))
        for step in (100, 200)
    ]
    return pandas.DataFrame(rows), pandas.DataFrame(points)


def test_the_picture_has_a_bar_for_each_start_and_curves_of_held_out_text() -> None:
    scores, loss, accuracy = draw_findings(*findings()).axes
    assert {text.get_text() for text in scores.texts} == {"0.12", "0.47", "0.91", "0.00", "0.94"}
    assert [tick.get_text() for tick in scores.get_xticklabels()] == ["kinds\nclassification, f1", "names\nNER, f1"]
    heights = [bar.get_height() for bars in scores.containers for bar in bars]
    assert heights == [0.125, 0.0, 0.47, 0.118, 0.907, 0.945]
    (line,) = loss.get_lines()
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([100, 200], [5.0, 2.5])
    assert [text.get_text() for text in loss.texts] == ["2.50"]
    assert [text.get_text() for text in accuracy.texts] == ["guessing", "0.75"]


def test_the_picture_is_written_and_its_path_told(tmp_path: Path) -> None:
    out, path = StringIO(), tmp_path / "a long folder's name" / "picture.png"
    path.parent.mkdir()
    show_picture(Console(file=out, width=80), *findings(), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert f"  {path}\n" in out.getvalue()


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
