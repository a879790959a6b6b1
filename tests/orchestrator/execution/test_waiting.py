"""Waiting for a run of another process: the outcome, lines of progress and of the end, and time that is over.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_waiting.py
"""

import pytest

from orchestrator.cli.entry import run_command_line
from orchestrator.errors import NotFoundError, RegistryUnavailableError, RunFailedError
from orchestrator.execution.session import ending_lines
from orchestrator.execution.waiting import outcome_line, progress_line, recorded_id, wait_for_run
from orchestrator.registry import patience
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.runs.run_metrics import RunMetrics
from orchestrator.results import MetricEvent, TrialStart
from orchestrator.settings import Settings


def start(recorder: Recorder, **fields: object) -> str:
    return recorder.start({"kind": "pretrain", "name": "small", "steps": 1000, **fields}, "f" * 64).id


@pytest.mark.parametrize(("error", "status"), [(None, 0), (RunFailedError("no luck"), 1), (KeyboardInterrupt(), 1)])
def test_the_exit_status_is_the_outcome(
    settings: Settings, recorder: Recorder, capsys: pytest.CaptureFixture[str], error: BaseException | None, status: int
) -> None:
    run_id = start(recorder)
    if error is None:
        recorder.complete(run_id, RunOutcome())
    else:
        recorder.fail(run_id, error)
    assert run_command_line(["wait", run_id]) == status
    assert capsys.readouterr().err == outcome_line(recorder.registry.run(run_id)) + "\n"


def test_a_run_that_was_submitted_just_now_is_waited_for(
    settings: Settings, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that begins between two looks, as a driver on a cluster begins it, is waited for."""
    run_id, pauses = "7f3a90b1c2d4", []

    def begin(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 2:
            recorder.start({"kind": "pretrain", "name": "small"}, "f", run_id=run_id)
            recorder.complete(run_id, RunOutcome())

    monkeypatch.setattr("time.sleep", begin)
    caplog.set_level("INFO", "orchestrator")
    assert wait_for_run(run_id, settings=settings, pause_s=7).id == run_id
    assert pauses == [7, 7]
    assert caplog.messages == [f"run {run_id} is not recorded yet; its job may be starting"]


def test_a_run_that_nobody_records_is_unknown_after_a_while(settings: Settings, recorder: Recorder) -> None:
    with pytest.raises(NotFoundError):
        recorded_id(recorder.registry, "7f3a90b1c2d4", patience_s=0, pause_s=0)


def test_a_run_is_waited_for_until_it_ends(settings: Settings, recorder: Recorder) -> None:
    run_id, lines = start(recorder), []

    def end_at_the_second_look(line: str) -> None:
        lines.append(line)
        if len(lines) == 2:
            recorder.complete(run_id, RunOutcome())

    record = wait_for_run(run_id[:6], settings=settings, on_progress=end_at_the_second_look, pause_s=0.0)
    assert (record.id, record.state, len(lines)) == (run_id, "COMPLETED", 2)


def test_a_registry_that_is_away_for_a_moment_ends_no_wait(
    settings: Settings, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, last_step, looks = start(recorder), RunMetrics.last_step, []

    def be_away_once(metrics: RunMetrics, run_id: str) -> int | None:
        looks.append(run_id)
        if len(looks) == 1:
            raise RegistryUnavailableError("the registry does not answer.")
        return last_step(metrics, run_id)

    monkeypatch.setattr(patience, "RETRY_S", 0.0)
    monkeypatch.setattr(RunMetrics, "last_step", be_away_once)
    ended = wait_for_run(
        run_id, settings=settings, on_progress=lambda line: recorder.complete(run_id, RunOutcome()), pause_s=0.0
    )
    assert (ended.state, len(looks)) == ("COMPLETED", 2)


def test_a_line_of_progress_has_step_and_loss(recorder: Recorder) -> None:
    run_id = start(recorder)
    recorder.record_events(run_id, [MetricEvent(40, "train", {"loss": 2.5})])
    line = progress_line(recorder.registry, recorder.registry.run(run_id))
    assert line == "small  RUNNING  step 40 of 1,000  train.loss 2.5000"


def test_a_line_of_progress_counts_the_trials_of_a_pipelines_newest_stage(recorder: Recorder) -> None:
    pipeline = recorder.start({"kind": "pipeline", "name": "all"}, "f" * 64)
    stage = start(recorder, kind="sweep", tags=[f"pipeline:{pipeline.id}"], steps=None)
    recorder.record_trials(stage, [TrialStart("a", 0, {"seed": 0}, 0)])
    assert progress_line(recorder.registry, pipeline) == "small  RUNNING  1 running"


def test_a_pipeline_ends_with_a_line_for_each_stage_in_order(recorder: Recorder) -> None:
    words = {"kind": "tokenizer", "corpus": {"files": ["text.txt"]}}
    stages = {"small": words, "large": words}
    pipeline = recorder.start({"kind": "pipeline", "name": "all", "stages": stages}, "f")
    for name in stages:
        recorder.start({**words, "name": f"all/{name}", "tags": [f"pipeline:{pipeline.id}"]}, name)
    lines = ending_lines(pipeline.id, recorder.registry)
    assert lines == ["small: completed after 0 s", "large: completed after 0 s"]


def test_a_registry_that_is_away_costs_the_last_words_alone(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_away(run_id: str) -> None:
        raise RegistryUnavailableError("the registry does not answer.")

    monkeypatch.setattr(recorder.registry, "run", be_away)
    assert ending_lines("7f3a", recorder.registry) == ["the result cannot be shown: the registry does not answer."]
