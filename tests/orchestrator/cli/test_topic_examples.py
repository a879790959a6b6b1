"""Examples of `orchestrator help TOPIC`: what they mention exists, and those that only read are run as they stand.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_topic_examples.py
"""

import gzip
import re
import shlex
from pathlib import Path

import click
import pytest

from orchestrator.cli.commands import PLACES
from orchestrator.cli.entry import cli
from orchestrator.cli.topics import load_topics
from orchestrator.registry import Registry
from orchestrator.results import MetricEvent, ModelResult
from orchestrator.settings import Settings
from tests.contracts.imports import ROOT
from tests.orchestrator.cli.laboratory import Command, RecordedSweep, commands_below

TOPICS = load_topics()
TEXT = "\n".join(topic.text for topic in TOPICS.values())
EXAMPLES = list(dict.fromkeys(re.findall(r"^    orchestrator (.+)$", TEXT, re.MULTILINE)))
INLINE = list(dict.fromkeys(re.findall(r"`orchestrator ([^`]+)`", TEXT)))
NOT_RUN = {
    "run": "trains",
    "resume": "trains",
    "stop": "changes a run",
    "submit": "wants a cluster",
    "runs logs": "wants a cluster, by its address",
    "doctor": "starts a Ray; tests/orchestrator/cluster/doctor runs it",
    "plan": "reads models and times steps; tests/orchestrator/planning runs it",
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


@pytest.mark.parametrize("mention", INLINE)
def test_a_command_that_a_topic_mentions_exists(mention: str) -> None:
    command: click.Command = cli
    for word in mention.split():
        if isinstance(command, click.Group):
            found = command.get_command(click.Context(command), word)
            assert found is not None, mention
            command = found
        elif word.startswith("-"):
            assert word in all_options(command), mention
        elif command.name == "help":
            assert word in {*TOPICS, *PLACES, "TOPIC", "COMMAND"}, mention


@pytest.mark.parametrize("topic", TOPICS)
def test_an_option_that_a_topic_mentions_is_one_of_some_command(topic: str) -> None:
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TOPICS[topic].text))
    assert mentioned - set().union(*map(all_options, commands_below().values())) == set()


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
