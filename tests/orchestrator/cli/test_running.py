"""`run` and `resume` around the driver. Alone: pytest tests/orchestrator/cli/test_running.py"""

from collections.abc import Callable, Sequence

import pytest

import orchestrator.execution.runner
from orchestrator.base.errors import RunFailedError
from orchestrator.base.results import TokenizerResult
from orchestrator.base.settings import Settings
from orchestrator.cli.entry import Interrupted
from orchestrator.kinds.corpus import TokenizerKind
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.specs import Spec
from orchestrator.specs.loading import load_spec
from tests.orchestrator.cli.laboratory import Command, RecordedSweep


def driver(error: BaseException | None) -> Callable[..., None]:
    """Stands for the driver: records a run, then ends."""

    def run_spec(
        spec: Spec,
        *,
        settings: object,
        run_id: str | None,
        on_started: Callable[[str], None],
        overrides: Sequence[str],
    ) -> None:
        on_started(run_id or f"id-of-{spec.name}")
        if error is not None:
            raise error

    return run_spec


@pytest.mark.parametrize(
    ("error", "status"), [(None, 0), (RunFailedError("no luck"), 1), (Interrupted(2), 130), (Interrupted(15), 143)]
)
def test_the_id_is_printed_however_the_run_ends(
    command: Command, spec: str, monkeypatch: pytest.MonkeyPatch, error: BaseException | None, status: int
) -> None:
    monkeypatch.setattr(orchestrator.execution.runner, "run_spec", driver(error))
    outcome = command("run", spec)
    assert (outcome.status, outcome.out) == (status, "id-of-words\n")


def test_an_interrupted_run_says_how_to_go_on(command: Command, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orchestrator.execution.runner, "run_spec", driver(Interrupted(2)))
    assert "stopped; go on with: orchestrator resume id-of-words" in command("run", spec).err
    asked = command("run", spec, "--home", "my things").err
    assert "go on with: orchestrator --home 'my things' resume id-of-words" in asked


def test_an_interrupted_resume_is_gone_on_with_as_it_was_begun(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resume_run(run_id: str, *arguments: object, on_started: Callable[[str], None], **options: object) -> None:
        on_started(run_id)
        raise Interrupted(2)

    monkeypatch.setattr(orchestrator.execution.runner, "resume_run", resume_run)
    said = command("resume", "7f3a90b1c2d4", "execution.num_workers=2", "--allow-drift").err
    assert "go on with: orchestrator resume 7f3a90b1c2d4 --allow-drift execution.num_workers=2\n" in said


def test_a_job_tells_who_submitted_it_how_to_go_on(
    command: Command, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHESTRATOR_ASKED_AT", "http://127.0.0.1:8265")
    monkeypatch.setattr(orchestrator.execution.runner, "run_spec", driver(Interrupted(15)))
    said = command("run", spec, "--run-id", "7f3a90b1c2d4").err
    assert "go on with: orchestrator --address http://127.0.0.1:8265 submit --resume 7f3a90b1c2d4\n" in said


@pytest.mark.parametrize("run_id", ["7f3a", "7f3a90b1c2d4; id", "7F3A90B1C2D4"])
def test_an_id_of_another_form_is_refused(command: Command, spec: str, run_id: str) -> None:
    outcome = command("run", spec, "--run-id", run_id)
    assert (outcome.status, outcome.out) == (2, "")
    assert "is no id of a run" in outcome.err


def test_an_id_that_a_run_has_already_is_refused(
    command: Command, spec: str, no_cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TokenizerKind, "run", lambda *arguments: TokenizerResult("storage/tokenizer", "f", 100))
    words = ["run", spec, "--run-id", "7f3a90b1c2d4"]
    first, second = command(*words), command(*words)
    assert (first.status, first.out) == (0, "7f3a90b1c2d4\n")
    assert (second.status, second.out) == (2, "")
    assert "run 7f3a90b1c2d4 is there already; go on with it: orchestrator resume 7f3a90b1c2d4" in second.err


@pytest.mark.parametrize("name", ["..", ".", " ", "a ", "/a", "~a", "-a"])
def test_a_name_by_which_no_command_would_find_the_run_is_refused(command: Command, spec: str, name: str) -> None:
    for outcome in (command("run", spec, f"--name={name}"), command("run", spec, f"name='{name}'")):
        assert (outcome.status, outcome.out) == (2, "")
        assert f"{name!r} cannot be a run's name" in outcome.err


def test_a_completed_run_of_the_same_spec_is_told_before_anything_heavy(
    command: Command, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orchestrator.execution.runner, "run_spec", driver(None))
    assert "completed this spec before" not in command("run", spec).err
    with Registry(Settings.from_options().registry) as registry:
        recorder = Recorder(registry)
        recorder.start({"kind": "tokenizer", "name": "words"}, load_spec(spec).fingerprint(), run_id="7f3a90b1c2d4")
        recorder.complete("7f3a90b1c2d4", RunOutcome())
    for verb in ("run", "plan"):
        assert "run 7f3a90b1c2d4 completed this spec before" in command(verb, spec).err


def test_resume_of_a_completed_run_leaves_it_as_it_is(command: Command, recorded_sweep: RecordedSweep) -> None:
    outcome = command("resume", recorded_sweep.run_id[:8])
    assert (outcome.status, outcome.out) == (0, recorded_sweep.run_id + "\n")
