"""The page `docs/tutorial.md` typed letter by letter, on real sweeps.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_tutorial.py
"""

from pathlib import Path

import pytest

from tests.contracts.imports import ROOT
from tests.orchestrator.cli.readme_blocks import read_blocks
from tests.orchestrator.cli.stranger import Stranger

PAGE = ROOT / "docs" / "tutorial.md"
ANSWERS = {
    "leaderboard complaints": "1",
    "groups compare": "distinguishable",
    "runs show spring --all": "made_with",
    "runs diff spring summer": "epochs",
    "cost complaints": "spring",
    "runs reproduce spring": "orchestrator run",
    "models lineage summer": "complaints",
    "--group-by params.learning_rate": "0.001",
}
"""Words that the answer to a command has, by a part of the command."""


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
                assert part not in command or expected in said.out, said
    for name in ("card.md", "backup.sqlite", "record.jsonl.gz", "spring.html", "complaints.html"):
        assert (tmp_path / name).stat().st_size > 0
