"""`init`, from files to a spec that runs. Alone: pytest tests/orchestrator/cli/test_drafting.py"""

from pathlib import Path

import pytest

from tests.orchestrator.cli.laboratory import Command
from tests.orchestrator.drafting.made_files import write_reviews, write_sentences


def test_init_says_what_it_found_and_what_comes_next(command: Command, tmp_path: Path) -> None:
    write_reviews(tmp_path / "reviews.csv", delimiter=";")
    outcome = command("init", "reviews.csv")
    assert (outcome.status, outcome.out) == (0, "reviews.yaml\n")
    assert "data      reviews.csv: CSV with ';' between columns, 60" in outcome.err
    assert "orchestrator run reviews.yaml" in outcome.err
    assert max(map(len, outcome.err.splitlines())) <= 80
    assert {path.name for path in tmp_path.iterdir()} >= {"reviews.yaml", "reviews.texts.txt"}


def test_a_second_init_writes_over_when_asked_only(command: Command, tmp_path: Path) -> None:
    write_reviews(tmp_path / "reviews.csv")
    command("init", "reviews.csv")
    again = command("init", "reviews.csv")
    assert again.status == 2
    assert "there already: reviews.texts.txt, reviews.yaml; write over with --force" in again.err
    assert command("init", "reviews.csv", "--force").status == 0


def test_the_data_itself_is_never_written_over(command: Command, tmp_path: Path) -> None:
    write_reviews(tmp_path / "drafted.texts.txt")
    outcome = command("init", "drafted.texts.txt", "--kind", "pretraining", "-o", "drafted.texts.txt", "--force")
    assert outcome.status == 2
    write_sentences(tmp_path / "drafted.texts.txt")
    outcome = command("init", "drafted.texts.txt", "-o", "drafted.yaml", "--force")
    assert (outcome.status, "it is the data itself" in outcome.err) == (2, True)


def test_what_cannot_be_read_leaves_nothing(command: Command, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()
    outcome = command("init", "empty.csv")
    assert (outcome.status, [path.name for path in tmp_path.iterdir()]) == (2, ["empty.csv"])
    assert "empty.csv is empty; name a file that holds data" in outcome.err


def test_a_model_that_cannot_be_read_is_refused(command: Command, tmp_path: Path) -> None:
    write_reviews(tmp_path / "reviews.csv")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "bert"}')
    outcome = command("init", "reviews.csv", "--model", "./model")
    assert outcome.status == 2
    assert "model.safetensors" in outcome.err
    assert not (tmp_path / "reviews.yaml").exists()


@pytest.mark.ray
@pytest.mark.training
@pytest.mark.runs
def test_a_drafted_spec_is_planned_and_runs_as_it_stands(command: Command, tmp_path: Path) -> None:
    write_reviews(tmp_path / "reviews.csv", 40)
    assert command("init", "reviews.csv", "--minutes", "1").status == 0
    assert command("plan", "reviews.yaml").status == 0
    outcome = command("run", "reviews.yaml")
    assert outcome.status == 0, outcome.err
    assert "best of" in outcome.err
