"""`orchestrator help`: commands, and topics that say what the code does.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_help.py
"""

import re
import shlex

import click
import pytest

import orchestrator.errors
from orchestrator import settings
from orchestrator.cli.entry import cli
from orchestrator.cli.topics import load_topics
from orchestrator.corpus.input_files import FORMATS
from orchestrator.registry.queries.query_fields import METRIC_SPLITS, NAMES
from orchestrator.registry.queries.query_history import FUNCTIONS
from orchestrator.registry.queries.query_tree import UNITS_S
from orchestrator.run_states import RunState
from orchestrator.specs.kinds import SPEC_KINDS
from orchestrator.storage.compression import COMPRESSIONS
from orchestrator.tasks import TASK_TYPES
from tests.contracts.imports import source_files
from tests.orchestrator.cli.laboratory import Command

TOPICS = load_topics()
INTERNAL = {
    "ORCHESTRATOR_ASKED_AT",
    "ORCHESTRATOR_BATCH_TRACE",
    "ORCHESTRATOR_BATCH_TRACE_HOLD_AFTER",
    "ORCHESTRATOR_COMPLETE",
}
"""Variables that processes of this project set for one another."""


def table_rows(text: str) -> list[list[str]]:
    """Cells of the tables in a text, without their headings."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    rules = [number for number, cells in enumerate(lines) if set("".join(cells)) <= set("-: |")]
    headings = {number - 1 for number in rules}
    return [cells for number, cells in enumerate(lines) if number not in headings and number not in rules]


def words(topic: str) -> set[str]:
    """The words in backticks of a topic, and those that stand alone in its tables."""
    text = TOPICS[topic].text
    return set(re.findall(r"`([^`]+)`", text)) | {word for row in table_rows(text) for word in re.split(r", ", row[0])}


def test_the_topics_are_listed_with_what_they_are_about(command: Command) -> None:
    outcome = command("help")
    assert outcome.status == 0
    assert [line.split()[0] for line in outcome.out.splitlines()[1:]] == list(TOPICS)
    assert "exit-status  Exit statuses" in outcome.out


def test_a_command_is_explained_as_by_its_own_help(command: Command) -> None:
    assert command("help", "runs", "list").out == command("runs", "list", "--help").out


def test_a_topic_is_plain_text_in_a_pipe(command: Command) -> None:
    outcome = command("help", "exit-status")
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out == TOPICS["exit-status"].text


def test_a_word_that_is_both_gets_both(command: Command) -> None:
    outcome = command("help", "resume").out
    assert outcome.startswith(command("resume", "--help").out)
    assert outcome.endswith(TOPICS["resume"].text)


@pytest.mark.parametrize(
    ("word", "near"), [("spec", "specs"), ("exit-statuss", "exit-status"), ("leaderbord", "leaderboard")]
)
def test_a_misspelt_word_is_wrong_usage_and_names_the_nearest(command: Command, word: str, near: str) -> None:
    outcome = command("help", word)
    assert (outcome.status, outcome.out) == (2, "")
    assert f"did you mean {near}?" in outcome.err


@pytest.mark.parametrize("topic", TOPICS)
def test_each_command_of_a_topic_can_be_typed(topic: str) -> None:
    typed = re.findall(r"^    (orchestrator .+)$", TOPICS[topic].text, re.MULTILINE)
    assert typed
    assert max(map(len, typed)) <= 76, "a terminal of 80 columns shows it on one line"
    for line in typed:
        context = click.Context(cli, info_name="orchestrator")
        for word in shlex.split(line.partition(" && ")[0])[1:]:
            command = context.command
            if isinstance(command, click.Group):
                found = command.get_command(context, word)
                assert found is not None, line
                context = click.Context(found, info_name=word, parent=context)
            elif word.startswith("--"):
                assert word in {option for one in command.params for option in one.opts}, line


def test_the_exit_statuses_are_those_of_the_errors() -> None:
    told = {int(status) for status, _ in table_rows(TOPICS["exit-status"].text)}
    errors = [value for value in vars(orchestrator.errors).values() if hasattr(value, "exit_status")]
    assert told == {0, 128 + 1, 128 + 2, 128 + 15, *(error.exit_status for error in errors)}


def test_every_variable_that_is_read_is_told() -> None:
    text = TOPICS["environment"].text
    named = {name for path in source_files().values() for name in re.findall(r"ORCHESTRATOR_[A-Z_]+", path.read_text())}
    told = set(re.findall(r"ORCHESTRATOR_[A-Z_]+", text))
    assert told == named - INTERNAL
    assert {settings.ADDRESS_VARIABLE, settings.API_ADDRESS_VARIABLE, settings.CACHE_VARIABLE} <= words("environment")


def test_the_kinds_of_specs_are_told() -> None:
    (listed,) = re.findall(r"default: ([\w, ]+)\.", " ".join(TOPICS["specs"].text.split()))
    assert listed.split(", ") == list(SPEC_KINDS)


def test_the_fields_of_queries_are_told() -> None:
    fields = {word for row in table_rows(TOPICS["queries"].text) for word in re.findall(r"`([\w.]+)`", row[0])}
    assert fields == {*NAMES, "metrics.X", "params.X", "tags.X"}
    assert all(
        f"{function}(" in TOPICS["queries"].text or f"`{function}`" in TOPICS["queries"].text for function in FUNCTIONS
    )
    assert all(f"`{unit}`" in TOPICS["queries"].text for unit in UNITS_S)
    assert all(f"`metrics.{split}.X`" in TOPICS["queries"].text for split in METRIC_SPLITS if split != "validation")


def test_the_states_of_runs_are_told() -> None:
    assert [row[0] for row in table_rows(TOPICS["registry"].text)] == list(RunState)


def test_the_formats_of_files_are_told() -> None:
    text = TOPICS["formats"].text
    assert {ending for ending in (*FORMATS, *COMPRESSIONS) if f"`{ending}`" not in text} == set()
    assert {head for head in TASK_TYPES if head not in words("formats")} == set()
    keys = {key for task_type in TASK_TYPES.values() for key in task_type.request_keys}
    assert {key for key in keys if f"`{key}`" not in text} == set()


def test_the_schemes_of_storages_are_told() -> None:
    told = re.search(r"schemes ([\w, ]+)\.", " ".join(TOPICS["storage"].text.split()))
    assert told is not None
    assert set(told.group(1).split(", ")) == set(settings.SCHEMES) - {"local", "memory"}
