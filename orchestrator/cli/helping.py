"""Command `help`: the help of a command, or a text about a topic."""

import sys
from dataclasses import dataclass
from importlib.resources import files

import click

from orchestrator.cli.frame import GlobalOptionsCommand
from orchestrator.cli.messages import notify
from orchestrator.cli.output import show_rows, show_text
from orchestrator.cli.tree import HINTS
from orchestrator.progress import is_terminal

_MAX_WIDTH = 100
"""Width in characters of text on a wide terminal."""


@dataclass(frozen=True)
class Topic:
    """A text about a subject that concerns more than one command."""

    name: str
    text: str

    @property
    def title(self) -> str:
        """The heading of the text."""
        return self.text.splitlines()[0].removeprefix("# ")


def load_topics() -> dict[str, Topic]:
    """Every topic by its name, sorted."""
    found = (file for file in files("orchestrator.cli").joinpath("topics").iterdir() if file.name.endswith(".md"))
    topics = (Topic(file.name.removesuffix(".md"), file.read_text(encoding="utf-8")) for file in found)
    return {topic.name: topic for topic in sorted(topics, key=lambda topic: topic.name)}


@click.command("help", cls=GlobalOptionsCommand, example="orchestrator help exit-status\norchestrator help runs show")
@click.argument("words", metavar="[TOPIC|COMMAND ...]", nargs=-1)
def show_help(words: tuple[str, ...]) -> None:
    """Show help for a command or topic, or list the topics."""
    root = click.get_current_context().find_root().command
    assert isinstance(root, click.Group)
    topics = load_topics()
    if not words:
        rows = [{"topic": topic.name, "about": topic.title} for topic in topics.values()]
        show_rows(rows, ["topic", "about"], None, None)
        notify("\nsee one with: orchestrator help TOPIC; a command with: orchestrator help COMMAND")
        return
    context = _context_of(root, words)
    topic = topics.get("-".join(words).lower())
    if context is None and topic is None:
        raise click.UsageError(_unknown(" ".join(words), [*topics, *root.list_commands(click.get_current_context())]))
    if context is not None:
        show_text(context.get_help())
    if context is not None and topic is not None:
        show_text("\n")
    if topic is not None:
        _show_topic(topic)


def _context_of(root: click.Group, words: tuple[str, ...]) -> click.Context | None:
    """The context of a command's help; None where the words name no command."""
    context = click.Context(root, info_name="orchestrator", **root.context_settings)
    for word in words:
        group = context.command
        command = group.get_command(context, word) if isinstance(group, click.Group) else None
        if command is None:
            return None
        context = click.Context(command, info_name=word, parent=context)
    return context


def _unknown(words: str, known: list[str]) -> str:
    from orchestrator.nearest import nearest

    if words in HINTS:
        return f"there is no topic or command {words!r}: {HINTS[words]}"
    close = nearest(words, known, 1)
    hint = (
        f"did you mean {close[0]}?" if close else "`orchestrator help` lists the topics, `orchestrator -h` the commands"
    )
    return f"there is no topic or command {words!r}; {hint}"


def _show_topic(topic: Topic) -> None:
    """Show a topic with its styles on a terminal, and as it is written in a pipe."""
    if not is_terminal(sys.stdout):
        show_text(topic.text)
        return
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.theme import Theme

    console = Console(file=sys.stdout, theme=Theme({"markdown.code": "cyan", "markdown.code_block": "cyan"}))
    console.print(Markdown(topic.text, code_theme="bw"), width=min(console.width, _MAX_WIDTH))
