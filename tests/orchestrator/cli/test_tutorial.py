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
ROWS: dict[str, dict[str, tuple[str, ...]]] = {
    "which learning rate won": {
        "leaderboard sst2": ("95 % of mean", "epochs=2 learning_rate=1e-05", "epochs=2 learning_rate=0.001")
    },
    "was it luck: seeds, intervals, a test": {
        "compare": ("difference ", "Welch, all seeds", "paired bootstrap, 40 examples", "McNemar")
    },
    "which data": {
        "runs show spring --all": ("60 train examples", "40 validation examples", "params.data.validation_digest")
    },
    "what did it cost": {"cost spring": ("spring", "in all: ", " CPU ")},
    "against published numbers": {
        "check sst2": ("validation", "accuracy", "Devlin et al. 2019", "yours began with random weights")
    },
    "how two runs differ": {"compare spring summer": ("recipe.epochs: 2 → 4", "The same in both: ")},
    "the command that makes it again": {"runs reproduce spring": ("command", " --show spec > ", "inputs")},
    "commit, uncommitted changes, packages": {
        "runs show spring --all": ("made_with.code.commit", "made_with.code.diff_bytes", "made_with.versions.torch")
    },
    "hardware": {"runs show spring --all": ("made_with.processor", "made_with.num_cores", "made_with.memory_bytes")},
    "note, tag, archive, delete": {
        "runs edit spring --note": ("noted on sweep", "(spring)"),
        "runs edit spring --tag": ("table-2",),
        "runs edit summer --archive": ("archived: sweep", "(summer)"),
        "runs rm summer": ("summer", "removed 1 run"),
    },
    "lineage": {"models lineage summer": ("model summer@1", "glue/SST-2/train.tsv", "tokenizer tokenizers/notes")},
    "back up and merge": {
        "db backup backup.sqlite": ("wrote backup.sqlite",),
        "db merge backup.sqlite": ("nothing to merge", "would be: 2 the same"),
    },
    "pages in a browser": {"board": ("http://127.0.0.1:",), "report spring": ("wrote spring.html",)},
}
"""Words of the answers that each question of the page's last table gets, by the beginning of the command."""
FURTHER: dict[str, tuple[str, ...]] = {
    "runs list --trials": ("1e-05", "0.001", "count"),
    "query \"tag = 'paper'": ("spring #0", "summer #5"),
    'query "dataset like': ("spring", "summer"),
    "cost sst2": ("spring", "summer"),
    "models lineage tokenizers/notes --down": ("model spring@1", "model summer@1"),
    "query \"tag = 'table-2'": ("spring",),
    "runs list --removed": ("summer",),
    "runs restore summer": ("restored sweep",),
    "runs list --registry backup.sqlite": ("spring", "summer"),
}
"""Words of the answers to other commands of the page."""
COMMANDS = [
    command
    for block in read_blocks(PAGE.read_text("utf-8"))
    if block.language == "console"
    for command in block.commands
]


def is_typed(beginning: str) -> bool:
    return any(command.startswith(f"orchestrator {beginning}") for command in COMMANDS)


def test_the_table_marks_just_the_questions_whose_answers_are_checked() -> None:
    """The thirteen questions that somebody asks months later."""
    table = PAGE.read_text("utf-8").partition("| question | command | checked |\n| --- | --- | --- |\n")[2]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert len(rows) == 13
    for question, commands, mark in rows:
        named = [name.removeprefix("orchestrator ") for name in re.findall(r"`([^`]+)`", commands)]
        assert named, question
        checked = ROWS.get(question, {})
        is_checked = all(is_typed(name) and any(checked.get(name, ())) for name in named)
        assert mark == ("●" if is_checked else ""), question
    assert {question for question, _, _ in rows} >= ROWS.keys()
    assert [beginning for beginning in FURTHER if not is_typed(beginning)] == []


@pytest.mark.ray
@pytest.mark.runs
def test_every_question_of_the_tutorial_is_answered(tmp_path: Path) -> None:
    stranger = Stranger(tmp_path)
    expected = [pair for answers in (*ROWS.values(), FURTHER) for pair in answers.items()]
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
            fitting = [pair for pair in expected if command.startswith(f"orchestrator {pair[0]}")]
            for beginning, words in fitting:
                if len(beginning) == max(len(other) for other, _ in fitting):
                    assert [word for word in words if word not in said.out + said.err] == [], said
    for name in ("card.md", "backup.sqlite", "spring.html", "sst2.html"):
        assert (tmp_path / name).stat().st_size > 0
    kept = next(tmp_path.rglob("trials/*/predictions.jsonl")).read_text("utf-8").split("\n")
    assert json.loads(kept[0])["text"], "reports show mistakes with their texts"
