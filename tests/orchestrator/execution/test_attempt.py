"""Costs and the limit of hours, by drivers without Ray: who is stopped, and who may go on.

Alone: pytest tests/orchestrator/execution/test_attempt.py
"""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import HoursReached, InputError
from orchestrator.base.results import TrialStart, WorkersEvent
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.execution.attempt import StopRequestWatcher, hours_reached, metered
from orchestrator.execution.runner import resume_run
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder
from orchestrator.registry.records import RunRecord
from orchestrator.specs import Spec
from orchestrator.specs.execution_overrides import override_execution
from orchestrator.specs.loading import parse_spec, spec_values
from tests.orchestrator.execution.below_ray import running
from tests.orchestrator.registry.samples import trial_result
from tests.orchestrator.small_specs import PRETRAIN, SWEEP, TOKENIZER, pipeline, write_inputs
from tests.waiting import PATIENCE_S, wait_until

HOUR_S = 3600


def pretrain(**execution: object) -> Spec:
    return parse_spec({**PRETRAIN, "name": "all/a", "execution": {"device": "cpu", **execution}})


def start(recorder: Recorder, spec: Spec) -> RunRecord:
    return recorder.start(spec_values(spec), spec.fingerprint(), storage_path="/none")


def stopped(recorder: Recorder, spec: Spec, *attempt_hours: float) -> RunRecord:
    """A run that was stopped after attempts of these lengths."""
    record = start(recorder, spec)
    for number, hours in enumerate(attempt_hours, start=1):
        if number > 1:
            record = recorder.resume(record.id)
        recorder.registry.lifecycle.finish(record.id, RunState.STOPPED, attempt=number, seconds=hours * HOUR_S)
    return recorder.registry.run(record.id)


def test_a_limit_shapes_neither_the_fingerprint_nor_the_group(recorder: Recorder) -> None:
    plain, limited = pretrain(), pretrain(max_hours=2)
    assert limited.fingerprint() == plain.fingerprint()
    assert start(recorder, limited).group_key == start(recorder, plain).group_key


def test_a_run_whose_attempts_took_all_hours_goes_on_with_more_alone(recorder: Recorder) -> None:
    spec = pretrain(max_hours=3)
    record = stopped(recorder, spec, 1.0, 2.0)
    reached = hours_reached(record, spec, record.seconds or 0.0)
    assert str(reached).endswith("execution.max_hours=6")
    for longer in (override_execution(spec, ["execution.max_hours=6"]), pretrain()):
        assert hours_reached(record, longer, record.seconds or 0.0) is None


@pytest.mark.parametrize("stages", [{"a": PRETRAIN}, {"b": TOKENIZER, "a.0": {**PRETRAIN, "name": "all/a"}}])
def test_a_stage_at_its_limit_names_the_pipeline_to_go_on_with(
    stages: dict[str, Any], recorder: Recorder, settings: Settings
) -> None:
    whole, spec = start(recorder, parse_spec(pipeline(**stages))), pretrain(max_hours=1)
    stage = recorder.resume(stopped(recorder, spec, 1.5).id)
    watch = StopRequestWatcher(recorder)
    with (
        watch.watching(whole, str(settings.home)),
        pytest.raises(HoursReached) as reached,
        metered(stage, spec, recorder.registry, watch),
    ):
        raise AssertionError("the stage is not begun")
    assert (reached.value.run_id, reached.value.again) == (whole.id, f"stages.{list(stages)[-1]}.execution.max_hours=2")
    assert f"run {stage.id}" in str(reached.value)


def test_a_run_at_its_limit_is_interrupted(recorder: Recorder, settings: Settings) -> None:
    spec = pretrain(max_hours=1e-6)
    record, watch = start(recorder, spec), StopRequestWatcher(recorder)

    def work() -> None:
        with (
            watch.watching(record, str(settings.home)),
            metered(record, spec, recorder.registry, watch, interval_s=0.01),
        ):
            wait_until(lambda: False, "nobody interrupts")

    with pytest.raises(HoursReached) as reached:
        work()
    assert (reached.value.run_id, reached.value.again) == (record.id, "execution.max_hours=2e-06")
    assert recorder.registry.costs.of_runs([record.id])


def test_a_run_beside_the_main_thread_is_warned_of_once(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    spec = pretrain(max_hours=1e-6)
    with metered(start(recorder, spec), spec, recorder.registry, StopRequestWatcher(recorder), interval_s=0.01):
        wait_until(lambda: bool(caplog.records), "no warning")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_an_attempts_costs_are_recorded_however_it_ends(recorder: Recorder) -> None:
    spec = pretrain(cpus_per_worker=3, data_cpus=1)
    record = start(recorder, spec)
    with (
        pytest.raises(RuntimeError, match="no luck"),
        metered(record, spec, recorder.registry, StopRequestWatcher(recorder)),
    ):
        raise RuntimeError("no luck")
    (cost,) = recorder.registry.costs.of_runs([record.id])
    assert (cost.number, cost.gpu_seconds, cost.gpu_type) == (1, 0.0, None)
    assert cost.cpu_seconds == pytest.approx(4 * cost.seconds, rel=0.1)
    with metered(recorder.resume(record.id), spec, recorder.registry, StopRequestWatcher(recorder), most_cpus=2):
        pass
    of_two_cores = recorder.registry.costs.of_runs([record.id])[-1]
    assert of_two_cores.cpu_seconds == pytest.approx(2 * of_two_cores.seconds)


def test_a_sweep_holds_what_its_trials_hold_while_they_run(recorder: Recorder) -> None:
    spec = parse_spec({**SWEEP, "execution": {"cpus_per_trial": 3, "gpus_per_trial": 0}})
    record = start(recorder, spec)
    with metered(record, spec, recorder.registry, StopRequestWatcher(recorder)):
        recorder.registry.trials.record(record.id, [trial_result(f"k{n}", number=n, seconds=8.0) for n in range(2)])
        recorder.registry.trials.record(record.id, [TrialStart("k2", 2, {}, 2)])
    (cost,) = recorder.registry.costs.of_runs([record.id])
    assert cost.cpu_seconds == pytest.approx(16 * 3, abs=5)


def test_a_pipeline_has_no_costs_beside_its_stages(recorder: Recorder) -> None:
    spec = parse_spec(pipeline(a=TOKENIZER))
    record = start(recorder, spec)
    with metered(record, spec, recorder.registry, StopRequestWatcher(recorder)):
        pass
    assert recorder.registry.costs.of_runs([record.id]) == []


def test_a_range_of_workers_holds_as_many_as_there_are(recorder: Recorder) -> None:
    spec = pretrain(num_workers={"min": 1, "max": 4}, cpus_per_worker=1, data_cpus=1)
    record = start(recorder, spec)
    recorder.registry.lifecycle.record_workers(record.id, 1, [WorkersEvent(0, ("a", "b", "c"))])
    with metered(record, spec, recorder.registry, StopRequestWatcher(recorder)):
        pass
    (cost,) = recorder.registry.costs.of_runs([record.id])
    assert cost.cpu_seconds == pytest.approx(3 * 2 * cost.seconds, rel=0.1)


def test_the_error_of_a_limit_survives_pickling() -> None:
    error = HoursReached("7f3a", "reached", "execution.max_hours=4", step=20)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.step, again.exit_status) == (str(error), 20, 1)


@pytest.mark.runs
def test_a_driver_at_its_limit_ends_as_if_it_were_stopped(tmp_path: Path, settings: Settings) -> None:
    write_inputs(tmp_path)
    (tmp_path / "small.yaml").write_text(json.dumps({**PRETRAIN, "execution": {"device": "cpu"}}))
    arguments = ("run", "small.yaml", "execution.max_hours=0.0002")
    with running("end_interrupted_at_step_7", tmp_path, *arguments) as (process, run_id):
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert f"stopped after step 7; go on with: orchestrator resume {run_id} execution.max_hours=0.0004\n" in said
    with Registry(settings.registry) as registry:
        record, (cost,) = registry.run(run_id), registry.costs.of_runs([run_id])
    assert record.state == RunState.STOPPED
    assert "execution.max_hours" in str(record.error)
    assert 0.0002 * HOUR_S <= cost.seconds < PATIENCE_S
    with pytest.raises(InputError, match=r"max_hours=0\.0004"):
        resume_run(run_id, settings=settings)
