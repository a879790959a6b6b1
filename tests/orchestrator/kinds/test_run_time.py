"""Time and cost of a run, as its plan tells them: by an earlier run of the same spec, or by a part of it.

Alone: .venv/bin/pytest tests/orchestrator/kinds/test_run_time.py
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.kinds import kind_of, resolved_inputs
from orchestrator.kinds.plan import ExpectedTime, cost_fact, expected_time, plan_rows
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder
from orchestrator.registry.records import AttemptCostRecord
from orchestrator.specs.loading import parse_spec, spec_values
from tests.orchestrator.small_specs import DISTILL, PRETRAIN, PROBE, STORE, SWEEP, TOKENIZER, pipeline

TINY = {
    **{**PRETRAIN, "model": {"size": "tiny"}, "global_batch_size": 4, "phases": [{"max_seq_length": 16}]},
    "execution": {"device": "cpu"},
}
TRIALS = {
    **{**SWEEP, "recipe": {"tokenizer": "words", "size": "tiny", "max_seq_length": 16}, "seeds": [0, 1]},
    "execution": {"gpus_per_trial": 0},
}
KEEPING = {**TINY, "execution": {"device": "cpu", "snapshot_steps": [0, 10]}}
FILLING = {"kind": "distill", "pretraining": TINY}


def from_stage(name: str) -> dict[str, Any]:
    """A sweep over two seeds that starts from what a stage makes."""
    return {**TRIALS, "recipe": {"init_from": f"@{name}", "max_seq_length": 16}}


def told(settings: Settings, values: dict[str, Any]) -> str | None:
    """Value of the row in which the plan of a spec tells its time."""
    time = expected(settings, values)
    return None if time is None else time.text


@pytest.mark.parametrize(
    "changes",
    [{"model": {"size": "large"}, "phases": [{"max_seq_length": 512}]}, {"execution": {"device": "gpu"}}],
    ids=["large", "on GPUs"],
)
def test_a_large_model_and_gpus_are_not_measured_here(settings: Settings, changes: dict[str, Any]) -> None:
    assert told(settings, {**TINY, **changes}) is None


@pytest.mark.training
@pytest.mark.parametrize(
    ("stages", "of_what"),
    [
        ({"words": TOKENIZER, "model": {**TINY, "tokenizer": "@words"}}, "for 10 steps, "),
        ({"words": TOKENIZER, "tokens": {**STORE, "tokenizer": "@words"}}, "for tokenizing, from its first text"),
        ({"words": TOKENIZER, "model": {**TINY, "tokenizer": "@words"}, "trials": from_stage("model")}, "for 2 trials"),
        ({"model": TRIALS, "student": {**DISTILL, "teacher": "@model"}}, "for 3 steps and the teacher's answers"),
        ({"model": KEEPING, "curve": {**PROBE, "run": "@model", "recipe": {"max_seq_length": 16}}}, "for 6 trials"),
        ({"model": TINY, "student": {**FILLING, "teacher": "@model"}}, "for 10 steps, "),
    ],
    ids=["pretrain", "corpus", "sweep", "distill", "probe", "distill on text"],
)
def test_what_begins_with_a_stage_is_measured_with_what_is_like_it(
    settings: Settings, stages: dict[str, Any], of_what: str
) -> None:
    spec = parse_spec(pipeline(**stages))
    rows = plan_rows(spec, resolved_inputs(spec, settings), with_time=True)
    times = {row.stage: row.value for row in rows if row.what == "time"}
    assert list(times) == [name for name in stages if name != "words"], "a tokenizer takes minutes at most"
    assert of_what in times[list(stages)[-1]]
    assert not settings.home.exists()


@pytest.mark.heavy
def test_a_text_whose_beginning_is_one_long_document_has_a_plan(settings: Settings, tmp_path: Path) -> None:
    """Its first megabyte has no second document to take other sentences from, and so no step to measure."""
    (tmp_path / "corpus.txt").write_text("a cat sat\n" * 300_000 + "\na cat sat\n\na cat sat\n")
    spec = parse_spec(TINY)
    rows = plan_rows(spec, resolved_inputs(spec, settings), with_time=True)
    assert "steps" in {row.what for row in rows}


NUM_CPUS = os.cpu_count() or 1


@pytest.fixture
def recorder(settings: Settings) -> Iterator[Recorder]:
    """A recorder of runs in the registry that plans look into."""
    settings.home.mkdir()
    with Registry(settings.registry) as registry:
        yield Recorder(registry)


def record(recorder: Recorder, values: dict[str, Any], seconds: float) -> str:
    """A completed run of a spec."""
    spec = parse_spec(values)
    run_id = recorder.start(spec_values(spec), spec.fingerprint(), storage_path="runs/r").id
    recorder.registry.costs.record(AttemptCostRecord(run_id, 1, seconds, seconds / 2, 0.0))
    recorder.registry.lifecycle.finish(run_id, RunState.COMPLETED, attempt=1, seconds=seconds)
    return run_id


def expected(settings: Settings, values: dict[str, Any]) -> ExpectedTime | None:
    spec = parse_spec(values)
    return expected_time(kind_of(spec), spec, resolved_inputs(spec, settings))


def cost(settings: Settings, values: dict[str, Any], time: ExpectedTime) -> str:
    spec = parse_spec(values)
    return cost_fact(kind_of(spec), spec, resolved_inputs(spec, settings), time)[1]


def test_a_spec_that_ran_before_costs_as_much_again(settings: Settings, recorder: Recorder) -> None:
    run_id = record(recorder, STORE, 7200.0)
    recorder.start(spec_values(parse_spec(STORE)), parse_spec(STORE).fingerprint())  # it has not completed
    time = expected(settings, STORE)
    assert time is not None
    assert f"as run {run_id} took on " in time.text
    assert cost(settings, STORE, time) == "about 1 CPU h"
    (settings.home / "prices.yaml").write_text("currency: EUR\ncpu_hour: 3\n")
    rows = {
        row.what: row.value
        for row in plan_rows(parse_spec(STORE), resolved_inputs(parse_spec(STORE), settings), with_time=True)
    }
    assert rows["cost"] == "about 1 CPU h; 3 EUR"


@pytest.mark.parametrize(
    ("values", "cpu_hours", "gpu_hours"),
    [
        (TINY, min(2, NUM_CPUS), 0),
        ({**TINY, "global_batch_size": 512, "execution": {"num_workers": 2 * NUM_CPUS, "device": "cpu"}}, NUM_CPUS, 0),
        ({**TRIALS, "execution": {"max_concurrent_trials": 2, "gpus_per_trial": 1}}, min(2, NUM_CPUS), 2),
        ({**PROBE, "steps": [0, 10], "execution": {"gpus_per_trial": 1}}, min(6, NUM_CPUS), 6),
    ],
    ids=["one worker", "more workers than CPUs", "trials", "trials of snapshots"],
)
def test_a_cost_counts_what_is_held_at_once(
    settings: Settings, values: dict[str, Any], cpu_hours: int, gpu_hours: int
) -> None:
    held = f"about {cpu_hours} CPU h" + (f"; {gpu_hours} GPU h" if gpu_hours else "")
    assert cost(settings, values, ExpectedTime(3600.0, "")) == held
