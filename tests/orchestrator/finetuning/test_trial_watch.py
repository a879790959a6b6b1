"""What a sweep's driver says of trials that find no place, and when it gives up; a fake clock, no Ray.

Run alone: pytest tests/orchestrator/finetuning/test_trial_watch.py
"""

import logging
from dataclasses import replace

import pytest

from orchestrator.errors import ClusterError
from orchestrator.finetuning import trial_watch
from orchestrator.finetuning.trial_watch import TrialWatch, expect_trials, find_trial_shortage
from orchestrator.reminders import Shortage
from orchestrator.specs.sweep import SweepExecutionSpec
from orchestrator.training.worker_watch import WorkerWatch


class Bench:
    """A watch with half an hour of patience, and the clock that it looks at."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING)
        self.caplog, self.now = caplog, 0.0
        self.shortage = Shortage(False, "1 × (1 GPU) asked, none free on any node", "needs 1 × {GPU: 1}")
        expected = expect_trials(SweepExecutionSpec(max_wait_minutes=30))
        workers = WorkerWatch(expected, lambda: self.shortage, "resume it", lambda: self.now)
        self.watch = TrialWatch(workers)

    def pass_time(self, seconds: float) -> list[int]:
        """Look four times a second; returns when something was said."""
        said: list[int] = []
        end = self.now + seconds
        while self.now < end:
            self.now += 0.25
            self.caplog.clear()
            self.watch.look()
            said += [round(self.now) for _ in self.caplog.messages]
        return said


@pytest.fixture
def bench(caplog: pytest.LogCaptureFixture) -> Bench:
    return Bench(caplog)


def test_trials_without_a_place_are_told_within_a_minute_and_end_the_sweep_at_last(bench: Bench) -> None:
    assert bench.pass_time(300) == [60, 120, 240]
    ending = r"^no trial has found a place to run for 30:00 min; needs 1 × \{GPU: 1\}.*max_wait_minutes \(30\)"
    with pytest.raises(ClusterError, match=ending):
        bench.pass_time(1800)


def test_a_sweep_that_cannot_start_says_so_within_ten_seconds(bench: Bench) -> None:
    bench.shortage = replace(bench.shortage, is_waiting=True)
    assert bench.pass_time(100) == [10, 20, 40, 80]


@pytest.mark.parametrize("one_is_starting", [True, False])
def test_one_trial_more_than_there_is_room_for_is_no_trouble_while_another_is_starting(
    one_is_starting: bool, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_watch, "find_shortage", lambda needed: replace(bench.shortage, is_waiting=True))
    monkeypatch.setattr(trial_watch, "placed_trial", lambda execution: None)
    monkeypatch.setattr(trial_watch, "holds_a_place", lambda: one_is_starting)
    bench.shortage = find_trial_shortage(SweepExecutionSpec())
    assert bench.pass_time(20) == ([] if one_is_starting else [10, 20])


def test_nothing_is_said_while_any_trial_runs(bench: Bench) -> None:
    bench.watch.began("a")
    bench.watch.began("b")
    bench.watch.ended("a")
    assert bench.pass_time(7200) == []


def test_a_trial_that_waits_for_another_process_counts_from_then_on(bench: Bench) -> None:
    bench.watch.began("a")
    bench.pass_time(1000)
    bench.watch.ended("a")
    assert bench.pass_time(90) == [1060]
