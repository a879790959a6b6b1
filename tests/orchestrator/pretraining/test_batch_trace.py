"""Traces of the batches that a pretraining consumes: the same for any number of workers, and after a resume.

Run alone: pytest tests/orchestrator/pretraining/test_batch_trace.py
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bert_core.examples.packing import PackedBatch
from orchestrator.pretraining import batch_trace
from orchestrator.pretraining.batch_trace import read_trace, traced
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.job import PretrainJob
from tests.orchestrator.pretraining.small_run import make_job


@pytest.fixture
def job(tmp_path: Path) -> PretrainJob:
    """A run of 24 steps in two phases."""
    return make_job(tmp_path, global_batch_size=12)


def consume(job: PretrainJob, steps: range, num_workers: int = 1, attempt: int = 1) -> None:
    """Take these steps' batches as so many workers do."""
    for rank in range(num_workers):

        def batches(first_step: int, rank: int = rank) -> Iterator[tuple[int, PackedBatch]]:
            yield from job.stream.batches(range(first_step, steps.stop), rank, num_workers)

        assert [step for step, _ in traced(batches, Worker(rank, num_workers), attempt)(steps.start)] == list(steps)


def trace_of(
    monkeypatch: pytest.MonkeyPatch, folder: Path, job: PretrainJob, steps: range, num_workers: int = 1
) -> dict[int, str]:
    monkeypatch.setenv(batch_trace.TRACE_VARIABLE, str(folder))
    consume(job, steps, num_workers)
    return read_trace(folder)


def test_any_number_of_workers_leaves_the_same_trace(
    job: PretrainJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trace_of(monkeypatch, tmp_path / "1", job, range(24))
    assert list(whole) == list(range(1, 25))
    assert len(set(whole.values())) == 24
    for num_workers in (2, 3):
        assert trace_of(monkeypatch, tmp_path / str(num_workers), job, range(24), num_workers) == whole


def test_a_killed_and_resumed_run_leaves_the_trace_of_a_straight_one(
    job: PretrainJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trace_of(monkeypatch, tmp_path / "straight", job, range(24))
    trace_of(monkeypatch, tmp_path / "killed", job, range(13))
    consume(job, range(10, 24), num_workers=2, attempt=2)
    assert read_trace(tmp_path / "killed") == whole
