"""Blocks of the README and of the pages on pretraining, fine-tuning and models, typed letter by letter by a stranger in
a folder of small files, in their order.

Alone, minutes long: .venv/bin/pytest -m slow tests/orchestrator/cli/test_readme_blocks.py
"""

import re
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest
import yaml

from orchestrator.base.settings import Settings
from orchestrator.cli.tree import cli
from orchestrator.registry import Registry
from orchestrator.specs.loading import load_spec, load_task_spec, parse_spec
from tests.orchestrator.cli.readme_blocks import README, Block, read_blocks
from tests.orchestrator.cli.stranger import Said, Stranger
from tests.waiting import wait_until

PAGES = (README, *(README.parent / "docs" / f"{name}.md" for name in ("pretraining", "fine_tuning", "models")))
TEXT = "".join(page.read_text(encoding="utf-8") for page in PAGES)
BLOCKS = read_blocks(TEXT)
JOINED = TEXT.replace("\\\n", " ")
COMMANDS = re.findall(r"^    orchestrator (.+)$", JOINED, re.MULTILINE)
COMMANDS += re.findall(r"[`']orchestrator ([^`']+)[`']", JOINED)
WRITTEN_BY_INIT = {"reviews.yaml": "init reviews.csv", "notes.yaml": "init notes/*.txt.gz"}
"""Specs that the README has written by `init`, and by which command."""
SHOWN = {
    "corpus ──►": "a picture of the way of the text",
    '{"sentences"': "an answer; tests/orchestrator/tasks/types/test_sentence_selection.py asks for such ones",
    "bert_core/   ": "the tree",
}
"""Blocks that nobody types, by their beginnings, and what they are."""
NOT_TYPED = {
    "make demo": "it installs; tests/orchestrator/demo/test_tour.py runs the demo itself",
    "make test": "this is a test",
    "execution.snapshot_steps=[0, 1000, 3000, 10000, 20000]": "hours: its snapshots are those of the whole run",
    "(umask 077 && ray get-auth-token": "needs a cluster on AWS",
    "ray up cluster.yaml": "needs a cluster on AWS",
    "ray exec cluster.yaml": "needs a cluster on AWS",
    "ray rsync-up cluster.yaml": "needs a cluster on AWS",
    "ray dashboard cluster.yaml": "needs a cluster on AWS",
    "export RAY_AUTH_MODE=token": "needs a cluster; tests/hosts types the tutorial's on three hosts",
    "orchestrator submit": "needs a cluster; tests/hosts types the tutorial's on three hosts",
}
"""Commands that are not typed here, by a part of them, and why."""
UNTIL_INTERRUPTED = {
    "orchestrator serve": (r"^http://", "stdout"),
    "orchestrator board": (r"^http://", "stdout"),
    "orchestrator resume": (r"^step \d", "stderr"),
}
"""Commands that are ended by Ctrl-C, after which line of what they print: a server, and a run that would be long."""
STATUS = {"orchestrator wait 7f3a": 1, "orchestrator resume": 130}
"""Exit statuses that are not 0: of a run that was stopped, and of Ctrl-C."""
LONG_RUN = (
    "orchestrator run experiments/pretrain_tiny_wikipedia.yaml 'corpus.files=[notes/*.txt.gz]' "
    "tokenizer=tokenizers/notes steps=100000"
)
SNAPSHOTS = LONG_RUN.replace("steps=100000", "'execution.snapshot_steps=[0, 30, 60]'")


def beginning(table: dict[str, object], command: str) -> str | None:
    """The key of a table that a command begins with."""
    return next((key for key in table if command.startswith(key)), None)


def is_shown(block: Block) -> bool:
    return beginning(dict(SHOWN), block.text) is not None


def is_typed(command: str) -> bool:
    return not any(part in command for part in NOT_TYPED)


def test_every_exception_is_still_needed() -> None:
    for key in SHOWN:
        assert any(block.text.startswith(key) for block in BLOCKS), key
    commands = [command for block in BLOCKS for command in block.commands]
    for part in (*NOT_TYPED, *UNTIL_INTERRUPTED, *STATUS):
        assert any(part in command for command in commands), part


def end_as_a_person_would(stranger: Stranger, command: str) -> Said:
    """Type a command; one that does not end by itself is interrupted once it has shown what it does."""
    key = beginning(dict(UNTIL_INTERRUPTED), command)
    if key is None:
        return stranger.type(command)
    pattern, stream = UNTIL_INTERRUPTED[key]
    return stranger.interrupt_after(pattern, command, stream=stream)


def start_long_run(stranger: Stranger) -> Callable[[], object]:
    """Begin a run that the README's `stop` finds at work; return what waits for its end."""
    process = stranger.start(LONG_RUN)
    home = Settings.from_options(home=str(stranger.folder / ".orchestrator"), environ={})

    def is_at_work() -> bool:
        assert process.poll() is None, process.communicate()
        with Registry(home.registry) as registry:
            runs = registry.runs("kind = 'pretrain' and state = 'RUNNING'", trials=False)
            return len(runs) > 0 and bool(len(registry.metrics.history(runs["id"].iloc[-1]).records))

    wait_until(is_at_work, "the run never began")
    return process.communicate


def commands_of(block: Block, folder: Path) -> tuple[str, ...]:
    """Commands of a block that are typed; a spec or a program is written to a file, and the file is run."""
    if is_shown(block):
        return ()
    if block.language == "yaml":
        (folder / "complaints.yaml").write_text(block.text)
        return ("orchestrator run complaints.yaml",)
    if block.language == "python":
        (folder / "block.py").write_text(block.text)
        return (f"{sys.executable} block.py",)
    return tuple(filter(is_typed, block.commands))


def type_block(stranger: Stranger, block: Block) -> None:
    """Type a block's commands in their order, beside what it takes for granted: a run at work, a run with snapshots."""
    commands = commands_of(block, stranger.folder)
    finish = start_long_run(stranger) if any("stop 7f3a" in each for each in commands) else None
    if any("run=7f3a" in each for each in commands):
        assert stranger.type(SNAPSHOTS).status == 0
    for command in commands:
        began_at = time.monotonic()
        said = end_as_a_person_would(stranger, command)
        print(f"{block.line:4} {time.monotonic() - began_at:6.1f} s  {command.split('  ')[0]}")
        expected = STATUS.get(beginning(dict(STATUS), command) or "", 0)
        assert said.status == expected, f"README, block at line {block.line}: {said}"
        assert "Traceback" not in said.err, said
    if finish is not None:
        finish()


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.runs
def test_every_block_is_typed_letter_by_letter(tmp_path: Path) -> None:
    stranger = Stranger(tmp_path)
    for block in BLOCKS:
        type_block(stranger, block)
    assert (tmp_path / "reviews.yaml").is_file()
    assert (tmp_path / "exported" / "config.json").is_file()


def understood(text: str) -> click.Context:
    """The command's context, its parameters read."""
    words = shlex.split(text, comments=True)
    command: click.Command = cli
    name = "orchestrator"
    while isinstance(command, click.Group):
        found, inner, words = command.resolve_command(click.Context(command), words)
        assert found is not None
        assert inner is not None
        name, command = found, inner
    return command.make_context(name, words)


@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_of_the_readme_is_understood(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.txt").touch()
    with understood(text) as context:
        given = context.params
        assert context.command.name in text.split()
        written = WRITTEN_BY_INIT.get(str(given.get("spec_path")))
        if written is not None:
            assert written in JOINED, "nothing writes it"
        elif given.get("spec_path") and not given.get("resumed"):
            load_spec(README.parent / given["spec_path"], given["overrides"])
        elif "task" in given and "overrides" in given:
            load_task_spec(given["task"], given["overrides"])


def test_the_readmes_spec_is_whole() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    spec = parse_spec(yaml.safe_load(text))
    assert (spec.kind, spec.task.id) == ("sweep", "complaints")
