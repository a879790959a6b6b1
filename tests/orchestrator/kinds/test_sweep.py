"""Sweeps as a kind of run: what they refuse, plan, take of the cluster and record.

pytest tests/orchestrator/kinds/test_sweep.py
"""

import dataclasses
import logging
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import SpecError
from orchestrator.kinds.sweep import build_listener, read_finished_trials
from orchestrator.registry.recorder import Recorder
from orchestrator.results import MetricEvent, TrialStart
from orchestrator.settings import Settings
from tests.orchestrator.kinds.contexts import Notebook, context_of
from tests.orchestrator.kinds.samples import TRIALS, complete
from tests.orchestrator.small_specs import (
    SWEEP,
    check,
    plan,
)


def test_a_range_that_its_field_refuses(settings: Settings) -> None:
    space = {"batch_size": {"uniform": [8, 32]}}
    with pytest.raises(SpecError, match=r"space\.batch_size"):
        check(settings, task={**SWEEP, "space": space, "search": "random", "trials": 2})


def test_lstm_layers_count_among_a_trials_weights(settings: Settings) -> None:
    Path("task.conll").write_text("anna B-PER\n\nsat O\n")
    task = {"id": "own", "head": "ner", "files": {"train": "task.conll", "validation": "task.conll"}}
    space = {"num_lstm_layers": [0, 1, 2], "layer_pooling": ["last", "scalar_mix"]}

    def parameters(**fields: Any) -> int:
        rows = plan(settings, {**SWEEP, "task": task, **fields})
        return int(rows["parameters"].removesuffix(", and a small head").replace(",", ""))

    layer = 2 * 4 * 64 * (128 + 64 + 2)  # directions, gates, their width, what each reads and two biases
    assert parameters(space=space) == parameters() + 2 * layer


def test_a_sweep_carries_its_best_trials_scores(recorder: Recorder) -> None:
    run = recorder.start({**SWEEP, "name": "sst2 sweep", "task": {"id": "sst2"}}, "f")
    trial = recorder.record_trial_start(run.id, TrialStart("k1", 1, {"learning_rate": 2e-5}, seed=0))
    recorder.record_events(trial, [MetricEvent(step, "validation", {"accuracy": step / 100}) for step in (20, 99)])
    assert recorder.record_trials(run.id, [TRIALS[1]]) == [trial]
    complete(recorder, run.id, "sweep")
    registry = recorder.registry
    scores = {"accuracy": 0.9, "baseline.accuracy": 0.5, "test.accuracy": 0.85}
    assert registry.metrics.latest(run.id) == registry.metrics.latest(trial) == scores
    sweep = registry.run(run.id)
    assert (sweep.state, sweep.metric) == ("COMPLETED", "accuracy")
    assert (sweep.model_folder, sweep.predictions_path) == ("storage/digest1", "predictions/1")
    assert registry.models.get("sst2 sweep").run_id == run.id
    assert list(registry.trials.frame(run.id).id)[1] == trial
    assert list(registry.leaderboard("sst2")["test"].dropna()) == [0.85]
    assert list(registry.datasets.frame(run.id).name) == ["wiki"]


def test_a_model_with_fewer_positions_than_tokens_is_refused(settings: Settings) -> None:
    with pytest.raises(SpecError, match=r"recipe\.max_seq_length 128 is longer than the 40 positions of short"):
        check(settings, task={**SWEEP, "recipe": {"init_from": "short", "max_seq_length": 128}})


def test_a_plan_of_a_sweep(settings: Settings) -> None:
    space = {"batch_size": [1, 2], "learning_rate": [1e-4, 2e-4, 3e-4]}
    execution = {"cpus_per_trial": 0.5, "gpus_per_trial": 0.25, "max_concurrent_trials": 2}
    recipe = {"tokenizer": "words", "epochs": 1}
    rows = plan(settings, {**SWEEP, "space": space, "seeds": [0, 1], "recipe": recipe, "execution": execution})
    parameters = rows.pop("parameters")
    assert parameters.endswith(", and a small head")
    assert rows == {
        "kind": "sweep",
        "task": "own (classification), ranked by accuracy",
        "data": "2 training examples; splits: train, validation",
        "trials": "12 (6 points × 2 seeds)",
        "steps of a trial": "1 to 2",
        "memory of a trial": "7.7 MB and activations",
        "trials at a time": "at most 2",
        "resources": "0.5 CPU, 0.25 GPU",
    }


def test_what_trials_report_is_recorded_and_those_that_ended_are_kept(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    book = Notebook()
    context, finished = context_of(settings, book), {TRIALS[0].key: TRIALS[0]}
    listener = build_listener(context, finished)
    failed = dataclasses.replace(TRIALS[1], key="k2", number=2, state="FAILED", error="no memory")
    collapsed = dataclasses.replace(TRIALS[1], metrics={"accuracy": 0.5, "collapsed": 1.0})
    for result in (failed, collapsed):
        listener.on_trial_result(result)
    assert [name for name, _ in book.recorded] == ["record_trials", "record_trials"]
    assert caplog.messages[0] == "trial 2 failed: no memory"
    assert caplog.messages[1].startswith("trial 1 (seed 0) collapsed: it never left the majority baseline")
    assert read_finished_trials(context.run_folder) == {"k0": TRIALS[0], "k1": collapsed}
    assert read_finished_trials("elsewhere") == {}
