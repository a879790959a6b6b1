"""Recording of trials: what journal and registry are told, and when the registry is away.

Run alone: pytest tests/orchestrator/kinds/test_trial_recording.py
"""

import dataclasses
import logging
import threading
from pathlib import Path

import pytest

from orchestrator.base.console import Progress
from orchestrator.base.errors import RegistryUnavailableError
from orchestrator.base.results import MetricEvent, TrialStart
from orchestrator.base.settings import Settings
from orchestrator.finetuning.trial_journal import TrialJournal
from orchestrator.kinds.base import RunContext
from orchestrator.kinds.trial_recording import trial_recording
from orchestrator.registry import database
from orchestrator.registry.database import Database
from orchestrator.registry.recorder import Recorder
from tests.orchestrator.kinds.contexts import Notebook, context_of
from tests.orchestrator.kinds.samples import TRIALS
from tests.orchestrator.small_specs import SWEEP
from tests.waiting import wait_until

START = TrialStart(TRIALS[0].key, 0, TRIALS[0].parameters, 0)
EVENTS = [MetricEvent(10, "train", {"loss": 0.7}), MetricEvent(10, "validation", {"accuracy": 0.8})]


def begun_journal(context: RunContext) -> TrialJournal:
    journal = TrialJournal(context.run_folder)
    journal.begin({"data": "as it is"})
    return journal


def test_trials_that_ended_are_recorded_and_kept_but_for_failed_ones(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    book = Notebook()
    context = context_of(settings, book)
    failed = dataclasses.replace(TRIALS[1], key="k2", number=2, state="FAILED", error="no memory")
    collapsed = dataclasses.replace(TRIALS[1], metrics={"accuracy": 0.5, "collapsed": 1.0})
    with trial_recording(context, begun_journal(context)) as listener:
        for result in (failed, collapsed):
            listener.on_trial_result(result)
    assert [name for name, _ in book.recorded] == ["trials.record"], "what comes at a time is one transaction"
    assert book.recorded[0][1] == (context.run_id, [failed, collapsed])
    assert caplog.messages[0].startswith("trial 1 (seed 0) collapsed")
    assert [trial.result for trial in TrialJournal(context.run_folder).trials] == [collapsed]


def test_a_trial_that_starts_again_has_each_measurement_once(settings: Settings) -> None:
    book = Notebook()
    context = context_of(settings, book)
    with trial_recording(context, begun_journal(context)) as listener:
        for _ in range(2):
            listener.on_trial_started(START)
            listener.on_trial_events(START.key, EVENTS)
        listener.on_trial_result(TRIALS[0])
    (trial,) = TrialJournal(context.run_folder).trials
    assert list(trial.events) == EVENTS


class AwayRegistry:
    """Makes the writing of trials and measurements fail until the registry is back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_away, self.num_tries, transaction = True, 0, Database.transaction

        def refuse_while_away(database: Database) -> object:
            if self.is_away:
                self.num_tries += 1
                raise RegistryUnavailableError("The registry does not answer.")
            return transaction(database)

        monkeypatch.setattr(Database, "transaction", refuse_while_away)
        monkeypatch.setattr(database, "RETRY_S", 0.01)


def sweep_context(recorder: Recorder, folder: Path) -> RunContext:
    """The context of a sweep that the registry knows."""
    run = recorder.start({**SWEEP, "name": "words", "task": {"id": "own"}}, "f")
    settings = Settings.from_options(home=str(folder), environ={})
    return RunContext(run.id, 1, str(folder / "run"), settings, recorder, Progress(), threading.Event())


def test_trials_go_on_while_the_registry_is_away_and_are_recorded_once_it_is_back(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = sweep_context(recorder, tmp_path)
    away = AwayRegistry(monkeypatch)
    with trial_recording(context, begun_journal(context)) as listener:
        listener.on_trial_started(START)
        listener.on_trial_events(START.key, EVENTS)
        listener.on_trial_result(TRIALS[0])
        wait_until(lambda: away.num_tries > 1, "nobody tried again")
        assert recorder.registry.trials.table(context.run_id).records == []
        away.is_away = False
    registry = recorder.registry
    (trial,) = registry.trials.table(context.run_id).values("id")
    assert registry.run(trial).state == "COMPLETED"
    assert registry.metrics.history(trial, "train.loss").values("value") == [0.7]
    assert len(registry.metrics.history(trial, "validation.accuracy").records) == 1


def test_what_the_registry_missed_is_recorded_when_the_sweep_goes_on(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = sweep_context(recorder, tmp_path)

    def run_until_interrupted() -> None:
        with trial_recording(context, begun_journal(context)) as listener:
            listener.on_trial_started(START)
            listener.on_trial_events(START.key, EVENTS)
            listener.on_trial_result(TRIALS[0])
            wait_until(lambda: away.num_tries > 1, "nobody tried again")
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        away = AwayRegistry(patch)
        with pytest.raises(KeyboardInterrupt):
            run_until_interrupted()
    registry = recorder.registry
    assert registry.trials.table(context.run_id).records == []

    next_attempt = dataclasses.replace(context, recorder=Recorder(registry))
    for _ in range(2):  # a second time changes nothing
        with trial_recording(next_attempt, TrialJournal(context.run_folder)):
            pass
        (trial,) = registry.trials.table(context.run_id).values("id")
        assert registry.run(trial).state == "COMPLETED"
        assert registry.metrics.history(trial, "train.loss").values("value") == [0.7]


def test_dropped_trials_leave_nothing_in_the_registry(recorder: Recorder, tmp_path: Path) -> None:
    context = sweep_context(recorder, tmp_path)
    (trial,) = recorder.registry.trials.record(context.run_id, [TRIALS[0]])
    recorder.record_events(trial, EVENTS)
    recorder.registry.trials.drop(context.run_id)
    registry = recorder.registry
    assert registry.trials.table(context.run_id).records == []
    assert registry.metrics.history(trial).records == []
    assert registry.run(context.run_id).state == "RUNNING"
