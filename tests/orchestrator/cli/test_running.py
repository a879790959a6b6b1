"""`run` and `resume` around the driver. Alone: pytest tests/orchestrator/cli/test_running.py"""

from collections.abc import Callable
from pathlib import Path

import pytest

import orchestrator.execution.runner
from orchestrator.cli.entry import Interrupted
from orchestrator.errors import RunFailedError
from orchestrator.specs import Spec
from tests.orchestrator.cli.laboratory import Command

SPEC = "kind: tokenizer\ncorpus: {files: [text.txt]}\n"


@pytest.fixture
def spec(home: Path, tmp_path: Path) -> str:
    (tmp_path / "words.yaml").write_text(SPEC)
    return "words.yaml"


def driver(error: BaseException | None) -> Callable[..., None]:
    """Stands for the driver: records a run, then ends."""

    def run_spec(spec: Spec, *, settings: object, on_started: Callable[[str], None]) -> None:
        on_started(f"id-of-{spec.name}")
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


def test_a_completed_run_says_where_to_look(command: Command, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orchestrator.execution.runner, "run_spec", driver(None))
    assert "completed; look at it with: orchestrator runs show id-of-words" in command("run", spec).err


def test_a_name_is_the_specs_name(command: Command, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orchestrator.execution.runner, "run_spec", driver(None))
    assert command("run", spec, "--name", "mine").out == "id-of-mine\n"
