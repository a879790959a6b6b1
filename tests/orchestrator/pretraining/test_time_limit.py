"""Steps that fit into a run's hours, measured below Ray.

Alone: pytest tests/orchestrator/pretraining/test_time_limit.py
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.base.errors import RunFailedError
from orchestrator.base.results import Event, MetricEvent
from orchestrator.pretraining import time_limit
from orchestrator.pretraining.job import PretrainJob
from orchestrator.pretraining.streams import build_stream
from orchestrator.pretraining.time_limit import NUM_TIMED_STEPS, NUM_WARM_STEPS, USED_SHARE, choose_steps
from orchestrator.specs import PretrainSpec
from orchestrator.storage import read_bytes, write_bytes
from orchestrator.training.worker_log import worker_logs
from tests.orchestrator.pretraining.small_run import make_job, run

EXECUTION = {"max_hours": 1.0, "snapshot_steps": [0], "log_every_steps": 1}
PHASES = [{"max_seq_length": 48, "share": 0.75}, {"max_seq_length": 16, "share": 0.25, "global_batch_size": 16}]
NUM_MEASURED = NUM_WARM_STEPS + NUM_TIMED_STEPS


@pytest.fixture
def asked(tmp_path: Path) -> PretrainSpec:
    return make_job(tmp_path, phases=PHASES, execution=EXECUTION).spec.model_copy(update={"steps": "auto"})


@pytest.fixture
def job_of(tmp_path: Path, asked: PretrainSpec) -> Callable[[PretrainSpec, str], PretrainJob]:
    job = make_job(tmp_path)
    store = job.stream.store
    return lambda spec, folder: replace(
        job, spec=spec, run_folder=folder, stream=build_stream(spec, store, job.tokenizer)
    )


def test_steps_are_those_that_the_speeds_of_the_phases_leave_time_for(
    asked: PretrainSpec, job_of: Callable[[PretrainSpec, str], PretrainJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[PretrainJob] = []
    seconds = {0: 2.0, 1: 0.5}  # of a step of each phase

    def train(job: PretrainJob, on_event: Callable[[Event], None]) -> None:
        jobs.append(job)
        for last in range(NUM_WARM_STEPS, job.spec.num_steps + 1, NUM_WARM_STEPS):
            steps = range(last - NUM_WARM_STEPS, last)
            is_warm = steps.start % NUM_MEASURED
            tokens = sum(len(batch.input_ids) for _, batch in job.stream.batches(steps))
            took_s = NUM_WARM_STEPS * seconds[steps.start // NUM_MEASURED] if is_warm else 1e6
            on_event(MetricEvent(last, "train", {"tokens_per_s": tokens / took_s}))

        now_s[0] = NUM_MEASURED * 2.5 + 24.0
        on_event(MetricEvent(job.spec.num_steps, "train", {"tokens_per_s": tokens / took_s}))
        now_s[0] += 6.0
        on_event(MetricEvent(job.spec.num_steps, "validation", {"mlm_loss": 1.0}))

    now_s = [0.0]
    monkeypatch.setattr(time_limit, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    chosen = choose_steps(asked, job_of, "folder/run-7", train, lambda: 3600.0)
    left_s, mean_s = USED_SHARE * (3600 - 30), 0.75 * 2 + 0.25 * 0.5
    assert chosen == pytest.approx((left_s - 9 * 6.0) / mean_s, rel=0.02)
    now_s[0], often = 0.0, asked.execution.model_copy(update={"evaluate_every_steps": 5})
    chosen = choose_steps(asked.model_copy(update={"execution": often}), job_of, "folder/run-7", train, lambda: 3600.0)
    assert chosen == pytest.approx(left_s / (mean_s + 6.0 / 5), rel=0.02)
    job = jobs[0]
    assert [steps for _, steps, _ in job.spec.phase_steps()] == [NUM_MEASURED] * 2
    assert job.spec.execution.snapshot_steps == ()
    assert job.run_folder.endswith("/run-7"), "messages name the run"
    now_s[0] = 0.0
    with pytest.raises(RunFailedError, match=r"execution\.max_hours 1"):
        choose_steps(asked, job_of, "folder/run-7", train, lambda: 3.0)


@pytest.mark.training
def test_a_measurement_trains_and_leaves_nothing(
    asked: PretrainSpec, job_of: Callable[[PretrainSpec, str], PretrainJob], tmp_path: Path
) -> None:
    chosen = choose_steps(asked, job_of, str(tmp_path / "run"), lambda job, emit: [run(job, emit)], lambda: 60.0)
    assert chosen > 10
    assert not (tmp_path / "run" / "measurement").exists()


def test_an_interrupted_measurement_names_no_step_to_go_on_from(
    asked: PretrainSpec, job_of: Callable[[PretrainSpec, str], PretrainJob], tmp_path: Path
) -> None:
    def train(job: PretrainJob, on_event: Callable[[Event], None]) -> None:
        interrupt = KeyboardInterrupt()
        vars(interrupt)["step"] = 7
        raise interrupt

    with pytest.raises(KeyboardInterrupt) as interruption:
        choose_steps(asked, job_of, str(tmp_path / "run"), train, lambda: 60.0)
    assert vars(interruption.value)["step"] is None


def test_a_measurement_that_fails_leaves_the_workers_logs_with_the_run(
    asked: PretrainSpec, job_of: Callable[[PretrainSpec, str], PretrainJob], tmp_path: Path
) -> None:
    def train(job: PretrainJob, on_event: Callable[[Event], None]) -> None:
        write_bytes(f"{job.run_folder}/workers/attempt-1-rank-0.txt", b"a traceback")
        raise RunFailedError("no luck")

    with pytest.raises(RunFailedError, match="no luck"):
        choose_steps(asked, job_of, str(tmp_path / "run"), train, lambda: 60.0)
    assert not (tmp_path / "run" / "measurement").exists()
    ((_, _, log),) = worker_logs(str(tmp_path / "run"))
    assert read_bytes(log) == b"a traceback"
