"""The page `docs/tutorial.md` typed letter by letter, on real sweeps.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_tutorial.py
"""

import json
import re
from pathlib import Path

import pytest

from tests.contracts.imports import ROOT
from tests.orchestrator.cli.readme_blocks import read_blocks
from tests.orchestrator.cli.stranger import Stranger

PAGE = ROOT / "docs" / "tutorial.md"
ANSWERS: dict[str, tuple[str, ...]] = {
    "leaderboard complaints": ("1",),
    "groups compare": ("distinguishable",),
    "runs show spring --all": (
        "made_with.code.commit",
        "made_with.versions.torch",
        "made_with.processor",
        "complaints",
    ),
    "runs diff spring summer": ("epochs",),
    "cost complaints": ("spring",),
    "published list --task sst2": ("BERT",),
    "runs reproduce spring": ("orchestrator run",),
    "models lineage summer": ("complaints",),
    "--group-by params.learning_rate": ("0.001",),
    "runs trash": ("summer",),
    "runs list --registry copy.sqlite": ("spring", "summer"),
}
"""Words that the answer to a command has, by a part of the command."""
COMMANDS = [
    command
    for block in read_blocks(PAGE.read_text("utf-8"))
    if block.language == "console"
    for command in block.commands
]


def test_every_question_of_the_table_has_a_command_that_the_page_types() -> None:
    """The thirteen questions that somebody asks months later: no row without a command that is tried below."""
    table = PAGE.read_text("utf-8").partition("| question | command |\n| --- | --- |\n")[2]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) == 13
    for question, answers in rows:
        named = re.findall(r"`([^`]+)`", answers)
        assert named, question
        for name in named:
            assert any(command.startswith(name) for command in COMMANDS), f"{question}: {name} is typed nowhere"
    for part in ANSWERS:
        assert any(part in command for command in COMMANDS), f"{part} is in no command"


@pytest.mark.ray
@pytest.mark.runs
def test_every_question_of_the_tutorial_is_answered(tmp_path: Path) -> None:
    stranger = Stranger(tmp_path)
    said = stranger.type("orchestrator tokenizer train notes/ -o tokenizers/notes --vocab-size 200")
    assert said.status == 0, said
    for block in read_blocks(PAGE.read_text("utf-8")):
        if block.language == "yaml":
            (tmp_path / "tune.yaml").write_text(block.text)
            continue
        for command in block.commands:
            if command == "orchestrator board":
                said = stranger.interrupt_after(r"^http://", f"{command} --port 0", stream="stdout")
            else:
                said = stranger.type(command)
            assert said.status == 0, said
            assert "Traceback" not in said.err, said
            for part, expected in ANSWERS.items():
                assert part not in command or all(word in said.out for word in expected), (part, said)
    for name in ("card.md", "backup.sqlite", "record.jsonl.gz", "copy.sqlite", "spring.html", "complaints.html"):
        assert (tmp_path / name).stat().st_size > 0
    kept = next(tmp_path.rglob("trials/*/predictions.jsonl")).read_text("utf-8").split("\n")
    assert json.loads(kept[0])["text"], "reports show mistakes with their texts"
