"""Commands to go on with, which a completed run and `runs show` say alike.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_next_steps.py
"""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import orchestrator.execution.runner
from bert_core.config import BertConfig
from orchestrator.base.results import ModelResult
from orchestrator.base.settings import Settings
from orchestrator.cli.tree import cli
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder
from orchestrator.storage import model_folder
from tests.orchestrator.cli.laboratory import Command

RUN = "7f3a90b1c2d4"


@pytest.fixture(autouse=True)
def carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs complete at once."""

    def resume_run(run_id: str, *arguments: object, on_started: Callable[[str], None], **options: object) -> None:
        on_started(run_id)

    monkeypatch.setattr(orchestrator.execution.runner, "resume_run", resume_run)


def record_run(home: Path, kind: str, head: str = "", folder: str = "s3://bucket/model", **spec: object) -> None:
    """Record a run, with a registered model if it has a head."""
    home.mkdir(parents=True)
    with Registry(Settings.from_options().registry) as registry:
        Recorder(registry).start({"kind": kind, "name": "one", **spec}, "f", run_id=RUN)
        if head:
            registry.models.register("one", ModelResult(folder, "d" * 64, 1, head), RUN)


def assert_parses(line: str) -> None:
    """Parse a command that is offered, behind a pipe or not. Raises: click.UsageError."""
    words, found = shlex.split(line.rpartition("| ")[2])[1:], cli
    context = click.Context(cli)
    while isinstance(found, click.Group):
        _, found, words = found.resolve_command(context, words)
    assert found is not None
    found.make_context("offered", words, parent=context)


def following(shown: str) -> list[str]:
    """Commands at the end of what `runs show` prints."""
    return [line.strip() for line in shown.partition("next\n")[2].splitlines()]


@pytest.mark.parametrize(
    ("head", "use"),
    [
        ("embedding", 'echo "A text of your own." | orchestrator embed one@1'),
        ("ner", 'echo "A text of your own." | orchestrator predict one@1'),
        ("qa", "orchestrator predict one@1 FILE"),
    ],
)
def test_a_completed_run_and_show_offer_the_same_use_of_a_model(
    command: Command, home: Path, head: str, use: str
) -> None:
    record_run(home, "sweep", head)
    export = "orchestrator models export one@1 -o one-1"
    assert command("resume", RUN).err.splitlines()[-2:] == [f"  {use}", f"  {export}"]
    offered = following(command("runs", "show", RUN).out)
    assert offered[:2] == [use, export]
    for line in offered:
        assert_parses(line)


@pytest.mark.parametrize("files", [{"train": "a.json", "validation": "b.json"}, {"train": "b.json"}])
def test_the_file_to_predict_is_that_for_validation_or_the_one_it_is_taken_from(
    command: Command, home: Path, tmp_path: Path, files: dict[str, str]
) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).touch()
    record_run(home, "sweep", "qa", task={"files": files})
    assert command("resume", RUN).err.splitlines()[-2] == "  orchestrator predict one@1 b.json"


@pytest.mark.parametrize(("head", "use"), [("classification", "predict one@1 FILE"), ("ner", "predict one@1")])
def test_a_model_of_pairs_is_not_asked_about_one_text(command: Command, home: Path, head: str, use: str) -> None:
    record_run(home, "sweep", head, str(home))
    (home / model_folder.RECORD_FILE).write_text('{"text_columns": ["sentence", "word"]}')
    assert command("resume", RUN).err.splitlines()[-2].endswith(f"orchestrator {use}")


def test_the_weights_are_not_downloaded_to_speak_of_a_model(
    command: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_json(path: str) -> object:
        read.append(path)
        raise RuntimeError("the bucket is closed")

    read: list[str] = []
    monkeypatch.setattr(model_folder, "read_json", read_json)
    record_run(home, "pretrain", "pretraining")
    assert "orchestrator embed one@1" in following(command("runs", "show", RUN).out)[0]
    assert command("resume", RUN).status == 0
    assert read == ["s3://bucket/model/config.json"] * 2


@pytest.mark.parametrize(
    ("config", "use"),
    [
        ({}, 'orchestrator fill-mask one@1 "A <mask> of your own."'),
        ({"model_type": "bert_core", "causal_attention": True}, "orchestrator embed one@1"),
        ({"architectures": ["BertForReplacedTokenDetection"]}, "orchestrator embed one@1"),
    ],
)
def test_a_model_that_was_pretrained_with_masks_is_offered_its_own_one(
    command: Command, home: Path, tmp_path: Path, config: dict[str, object], use: str
) -> None:
    sizes = BertConfig.from_size("tiny", vocab_size=100).to_dict()
    (tmp_path / "config.json").write_text(json.dumps(sizes | config))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"mask_token": "<mask>"}))
    record_run(home, "pretrain", "pretraining", str(tmp_path))
    assert use in following(command("runs", "show", RUN).out)[0]


def test_a_registry_that_breaks_does_not_change_the_status_of_a_completed_run(
    command: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: Registry, run_id: str) -> None:
        raise RuntimeError("broken")

    record_run(home, "pretrain")
    monkeypatch.setattr(Registry, "run", run)
    shown = command("resume", RUN)
    assert (shown.status, shown.out) == (0, f"{RUN}\n")
