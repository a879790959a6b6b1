"""Probes as a kind of run: what they refuse, plan, hand to a sweep, show and record; one of a pretraining end to end.

pytest tests/orchestrator/kinds/test_probe.py
"""

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.base.errors import SpecError
from orchestrator.base.results import SweepResult, TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.execution.runner import run_spec
from orchestrator.finetuning import sweep as sweep_module
from orchestrator.finetuning.trial_journal import EndedTrial
from orchestrator.kinds import resolved_inputs
from orchestrator.kinds.probe import ProbeKind, _sweep_over, learning_curve
from orchestrator.kinds.sweep import begin_journal
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder
from orchestrator.reports.pages import plot_run
from orchestrator.specs.loading import parse_spec
from orchestrator.specs.sweep import ProbeSpec
from tests.orchestrator.kinds.contexts import Notebook, context_of
from tests.orchestrator.kinds.samples import complete
from tests.orchestrator.small_specs import PRETRAIN, PROBE, SWEEP, check, input_identity, pipeline, plan

KEEPING = {**PRETRAIN, "execution": {"snapshot_steps": [10, 0, 2]}}


def probe_spec(**fields: Any) -> ProbeSpec:
    return ProbeSpec.model_validate({**PROBE, **fields})


def trial(number: int, folder: str, seed: int, accuracy: float | None) -> TrialResult:
    """A trial that started from a snapshot's folder; a failed one where it has no accuracy."""
    return TrialResult(
        key=f"k{number}",
        number=number,
        parameters={"init_from": folder},
        state=RunState.FAILED if accuracy is None else RunState.COMPLETED,
        seed=seed,
        metrics={} if accuracy is None else {"accuracy": accuracy, "baseline.accuracy": 0.5, "baseline.f1": 0.4},
    )


TRIALS = [trial(0, "zero", 0, 0.5), trial(1, "zero", 1, 0.6), trial(2, "five", 0, None), trial(3, "ten", 0, 0.75)]
FOLDERS = {0: "zero", 5: "five", 10: "ten"}


class TestSpec:
    @pytest.mark.parametrize(
        ("fields", "problem"),
        [
            ({"recipe": {"init_from": "short"}}, "init_from"),
            ({"seeds": [1, 1]}, "seeds"),
            ({"steps": [5, 5]}, "steps"),
            ({"steps": []}, "steps"),
        ],
    )
    def test_what_contradicts_itself_is_refused(self, fields: dict[str, Any], problem: str) -> None:
        with pytest.raises(ValidationError, match=problem):
            probe_spec(**fields)


class TestChecks:
    def test_a_run_without_snapshots(self, settings: Settings) -> None:
        with pytest.raises(SpecError, match="run: short"):
            check(settings, curve={**PROBE, "run": "short"})
        with pytest.raises(SpecError, match=r"stages\.curve: run: @model"):
            check(settings, model=PRETRAIN, curve={**PROBE, "run": "@model"})

    def test_a_step_without_a_snapshot(self, settings: Settings) -> None:
        with pytest.raises(SpecError, match="3, 7"):
            check(settings, curve={**PROBE, "steps": [7, 5, 3]})

    def test_a_stage_that_pretrains_nothing(self, settings: Settings) -> None:
        with pytest.raises(SpecError, match="run @task"):
            check(settings, task=SWEEP, curve={**PROBE, "run": "@task"})


def test_a_plan_tells_snapshots_trials_steps_and_disk(settings: Settings) -> None:
    rows = plan(settings, {**PROBE, "steps": [10, 0], "seeds": [0, 1, 2]})
    assert rows["snapshots"] == "of steps 0, 10"
    assert rows["trials"] == "6 (2 snapshots × 3 seeds)"
    assert rows["steps of a trial"] == "3"
    assert rows["disk"] == "13.5 MB of checkpoints, 3.4 MB of models"


def test_a_plan_knows_the_snapshots_that_a_stage_will_make(settings: Settings) -> None:
    rows = plan(settings, pipeline(model=KEEPING, curve={**PROBE, "run": "@model"}))
    assert rows["snapshots"] == "of steps 0, 2, 10"
    assert rows["trials"] == "9 (3 snapshots × 3 seeds)"
    assert "parameters" in rows


def test_the_input_identity_follows_the_weights_of_the_snapshots(settings: Settings) -> None:
    before = {steps: input_identity(settings, {**PROBE, "steps": steps}) for steps in ((0, 5), (5,))}
    Path("probed/snapshots/step-00000000-attempt-1/model.safetensors").write_bytes(b"others")
    after = {steps: input_identity(settings, {**PROBE, "steps": steps}) for steps in before}
    assert after[0, 5] != before[0, 5]
    assert after[5,] == before[5,]


def test_a_curve_is_the_mean_over_the_completed_trials_of_each_snapshot() -> None:
    curve = dict(learning_curve(TRIALS, FOLDERS, "accuracy"))
    zero = curve.pop(0)
    assert (zero["accuracy"], zero["sd.accuracy"]) == (pytest.approx(0.55), pytest.approx(0.0707, abs=1e-4))
    assert curve == {5: {}, 10: {"accuracy": 0.75, "baseline.accuracy": 0.5}}


def test_an_interrupted_probe_goes_on_as_a_sweep_over_its_snapshots(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    spec, book = probe_spec(seeds=[0, 1]), Notebook()
    inputs, context = resolved_inputs(spec, settings), context_of(settings, book)
    sweep = _sweep_over(spec, inputs)
    begin_journal(sweep, inputs, context).append(EndedTrial(TRIALS[0]))
    asked: dict[str, Any] = {}

    def run_sweep(sweep: Any, **arguments: Any) -> SweepResult:
        folders = sweep.space["init_from"]
        asked.update(arguments, folders=folders, seeds=sweep.seeds)
        trials = [trial(number, folder, 0, 0.9) for number, folder in enumerate(folders)]
        return SweepResult("own", "accuracy", trials, trials[0])

    monkeypatch.setattr(sweep_module, "run_sweep", run_sweep)
    result = ProbeKind().run(spec, inputs, context)
    assert [trial.result.key for trial in asked["finished"]] == ["k0"]
    assert [Path(folder).name for folder in asked["folders"]] == [f"step-{step:08d}-attempt-1" for step in (0, 5, 10)]
    assert asked["seeds"] == (0, 1)
    assert list(result.curve) == [0, 5, 10]
    assert caplog.messages[-1].split() == ["10", "0.9000", "–"]


def test_a_probe_measures_by_the_steps_of_pretraining(recorder: Recorder) -> None:
    run = recorder.start({**PROBE, "name": "curve"}, "f", metric="accuracy")
    complete(recorder, run.id, "probe")
    history = recorder.registry.metrics.history(run.id, "validation.accuracy").frame()
    assert dict(zip(history["step"], history["value"], strict=True)) == {0: 0.8, 10: 0.7}
    assert recorder.registry.metrics.latest(run.id) == {"accuracy": 0.7}
    assert len(recorder.registry.trials.table(run.id).records) == 2


@pytest.mark.ray
@pytest.mark.core
def test_a_pretraining_is_followed_by_its_score_on_a_task(
    ray_cluster: None, settings: Settings, tmp_path: Path
) -> None:
    shutil.rmtree("probed")
    Path("corpus.txt").write_text("\n\n".join("a cat sat. a sat cat. cat sat a." for _ in range(40)) + "\n")
    Path("task.csv").write_text("text,label\n" + "a cat sat,a\nsat sat,b\n" * 8)
    network = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = {**KEEPING, "model": network, "global_batch_size": 4, "phases": [{"max_seq_length": 16}]}
    curve = {
        **PROBE,
        "run": "@model",
        "steps": [0, 10],
        "recipe": {"max_seq_length": 16, "batch_size": 8},
        "seeds": [0, 1],
    }
    record = run_spec(parse_spec(pipeline(model=model, curve=curve)), settings=settings)
    assert record.state == "COMPLETED"
    with Registry(settings.registry) as registry:
        (run_id,) = registry.runs("kind = 'probe'")["id"]
        history = registry.metrics.history(run_id, "validation.accuracy").frame()
        assert history["step"].tolist() == [0, 10]
        assert len(registry.trials.table(run_id).records) == 4
        assert registry.run(run_id).spec["run"] == "all/model@1"
        plot_run(registry, registry.run(run_id), "curve.svg")
    assert Path("curve.svg").read_text().rstrip().endswith("</svg>")
    log = (Path(settings.storage) / "runs" / run_id / "log.txt").read_text()
    assert [line.split()[2] for line in log.splitlines()[-5:-2]] == ["step", "0", "10"]
