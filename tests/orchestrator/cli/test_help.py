"""`orchestrator help`: commands, and topics that say what the code does.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_help.py
"""

import gzip
import re
import shlex
from pathlib import Path

import click
import pytest

import orchestrator.base.errors
from orchestrator.base import settings
from orchestrator.base.results import MetricEvent, ModelResult
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.cli.tree import PLACES, cli, load_topics
from orchestrator.corpus.input_files import FORMATS
from orchestrator.registry import Registry
from orchestrator.registry.fields import FIELD_NAMES
from orchestrator.registry.query_language import FUNCTIONS, METRIC_SPLITS, UNITS_S
from orchestrator.specs import SPEC_KINDS
from orchestrator.storage.text_lines import COMPRESSIONS
from orchestrator.tasks.types import TASK_TYPES
from tests.contracts.imports import ROOT, source_files
from tests.orchestrator.cli.laboratory import Command, RecordedSweep, commands_below

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
    text = TOPICS[topic]
    return set(re.findall(r"`([^`]+)`", text)) | {word for row in table_rows(text) for word in re.split(r", ", row[0])}


def test_the_topics_are_listed_with_what_they_are_about(command: Command) -> None:
    outcome = command("help")
    assert outcome.status == 0
    assert [line.split()[0] for line in outcome.out.splitlines()[1:]] == list(TOPICS)
    assert "exit-status  Exit statuses" in outcome.out


def test_a_command_is_explained_as_by_its_own_help(command: Command) -> None:
    assert command("help", "runs", "list").out == command("runs", "list", "--help").out


def test_a_word_that_is_both_gets_both(command: Command) -> None:
    outcome = command("help", "resume").out
    assert outcome.startswith(command("resume", "--help").out)
    assert outcome.endswith(TOPICS["resume"])


@pytest.mark.parametrize(
    ("word", "near"), [("spec", "specs"), ("exit-statuss", "exit-status"), ("leaderbord", "leaderboard")]
)
def test_a_misspelt_word_is_wrong_usage_and_names_the_nearest(command: Command, word: str, near: str) -> None:
    outcome = command("help", word)
    assert (outcome.status, outcome.out) == (2, "")
    assert f"did you mean {near}?" in outcome.err


def test_the_exit_statuses_are_those_of_the_errors() -> None:
    told = {int(status) for status, _ in table_rows(TOPICS["exit-status"])}
    errors = [value for value in vars(orchestrator.base.errors).values() if hasattr(value, "exit_status")]
    assert told == {0, 128 + 1, 128 + 2, 128 + 15, *(error.exit_status for error in errors)}


def test_every_variable_that_is_read_is_told() -> None:
    text = TOPICS["environment"]
    named = {name for path in source_files().values() for name in re.findall(r"ORCHESTRATOR_[A-Z_]+", path.read_text())}
    told = set(re.findall(r"ORCHESTRATOR_[A-Z_]+", text))
    assert told == named - INTERNAL
    assert {settings.ADDRESS_VARIABLE, settings.API_ADDRESS_VARIABLE, settings.CACHE_VARIABLE} <= words("environment")


def test_the_kinds_of_specs_are_told() -> None:
    (listed,) = re.findall(r"default: ([\w, ]+)\.", " ".join(TOPICS["specs"].split()))
    assert listed.split(", ") == list(SPEC_KINDS)


def test_the_fields_of_queries_are_told() -> None:
    fields = {word for row in table_rows(TOPICS["queries"]) for word in re.findall(r"`([\w.]+)`", row[0])}
    assert fields == {*FIELD_NAMES, "metrics.X", "params.X", "tags.X"}
    assert all(f"{function}(" in TOPICS["queries"] or f"`{function}`" in TOPICS["queries"] for function in FUNCTIONS)
    assert all(f"`{unit}`" in TOPICS["queries"] for unit in UNITS_S)
    assert all(f"`metrics.{split}.X`" in TOPICS["queries"] for split in METRIC_SPLITS if split != "validation")


def test_the_states_of_runs_are_told() -> None:
    assert [row[0] for row in table_rows(TOPICS["registry"])] == list(RunState)


def test_the_formats_of_files_are_told() -> None:
    text = TOPICS["formats"]
    assert {ending for ending in (*FORMATS, *COMPRESSIONS) if f"`{ending}`" not in text} == set()
    assert {head for head in TASK_TYPES if head not in words("formats")} == set()
    keys = {key for task_type in TASK_TYPES.values() for key in task_type.request.keys}
    assert {key for key in keys if f"`{key}`" not in text} == set()


def test_the_schemes_of_storages_are_told() -> None:
    told = re.search(r"schemes ([\w, ]+)\.", " ".join(TOPICS["storage"].split()))
    assert told is not None
    assert set(told.group(1).split(", ")) == set(settings.SCHEMES) - {"local", "memory"}


TEXT = "\n".join(TOPICS.values())
EXAMPLES = list(dict.fromkeys(re.findall(r"^    orchestrator (.+)$", TEXT, re.MULTILINE)))
INLINE = list(dict.fromkeys(re.findall(r"`orchestrator ([^`]+)`", TEXT)))
NOT_RUN = {
    "run": "trains",
    "resume": "trains",
    "stop": "changes a run",
    "submit": "wants a cluster",
    "runs logs": "wants a cluster, by its address",
    "db merge": "wants another registry; tests/orchestrator/cli/test_registry_keeping.py runs it",
    "doctor": "starts a Ray; tests/orchestrator/cluster/doctor runs it",
    "plan": "reads models and times steps; tests/orchestrator/kinds/test_run_time.py runs it",
    "evaluate": "wants a model; test_models.py beside this file runs it",
}
"""Commands whose examples are not run here, and why."""


def typed_command(example: str) -> str:
    """The command of an example, with the one below it where there is one."""
    first, *others = shlex.split(example)
    return f"{first} {others[0]}" if isinstance(cli.get_command(click.Context(cli), first), click.Group) else first


def all_options(command: click.Command) -> set[str]:
    """Options of a command and of all below it."""
    own = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union(*(all_options(each) for each in below))


@pytest.mark.parametrize("mention", [*INLINE, *EXAMPLES])
def test_a_command_that_a_topic_mentions_exists(mention: str) -> None:
    command: click.Command = cli
    for word in shlex.split(mention.partition(" && ")[0]):
        if isinstance(command, click.Group):
            found = command.get_command(click.Context(command), word)
            assert found is not None, mention
            command = found
        elif re.fullmatch(r"-\w|--.+", word):
            assert word in all_options(command), mention
        elif command.name == "help":
            assert word in {*TOPICS, *PLACES, "TOPIC", "COMMAND"}, mention


@pytest.mark.parametrize("topic", TOPICS)
def test_an_option_that_a_topic_mentions_is_one_of_some_command(topic: str) -> None:
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TOPICS[topic]))
    assert mentioned - set().union(*map(all_options, commands_below().values())) == set()


def test_no_example_of_a_topic_breaks_on_a_terminal_of_80_columns() -> None:
    assert [line for line in TEXT.splitlines() if line.startswith("    ") and len(line.strip()) > 78] == []


@pytest.mark.parametrize("path", sorted(set(re.findall(r"experiments/\w+\.yaml", TEXT))))
def test_a_file_that_a_topic_names_is_there(path: str) -> None:
    assert (ROOT / path).is_file()


def test_every_example_that_is_not_run_has_its_reason() -> None:
    commands = {typed_command(example) for example in EXAMPLES}
    assert commands >= set(NOT_RUN), "a reason for what no topic shows any more"
    assert commands - set(NOT_RUN) >= {"query", "runs list", "runs show", "models list", "corpus inspect", "schema"}


@pytest.mark.parametrize("example", [each for each in EXAMPLES if typed_command(each) not in NOT_RUN])
@pytest.mark.heavy
def test_an_example_that_only_reads_can_be_pasted(
    example: str, command: Command, recorded_sweep: RecordedSweep, tmp_path: Path
) -> None:
    (tmp_path / "data" / "pretrain").mkdir(parents=True)
    with gzip.open(tmp_path / "data" / "pretrain" / "notes.txt.gz", "wt") as file:
        file.write("Cats rest. Dogs bark.\n\nRain falls on old stones.\n")
    with Registry(Settings.from_options().registry) as registry:
        events = [MetricEvent(4, "validation", {"f1": 0.95}), MetricEvent(4, "test", {"f1": 0.97})]
        registry.metrics.record(recorded_sweep.trial_ids[3], events)
        for digest in "ab":  # two versions
            model = ModelResult("m", digest * 64, 1, "classification")
            registry.models.register("reviews/tune", model, run_id=recorded_sweep.run_id)
    # The topics' id stands for one that a person has.
    for line in example.replace("7f3a", recorded_sweep.run_id[:4]).split(" && orchestrator "):
        outcome = command(*shlex.split(line))
        assert (outcome.status, "Error" in outcome.err) == (0, False), outcome.err
