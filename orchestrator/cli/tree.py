"""Every command under its heading; and what is about the commands: the first page, `runs`, `help`, `completion`."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from orchestrator import __version__
from orchestrator.base.console import is_terminal
from orchestrator.cli.frame import GlobalOptionsGroup, command
from orchestrator.cli.messages import notify
from orchestrator.cli.output import show_rows, show_text


def _places(*of_modules: str) -> dict[str, str]:
    """Module and name of each command, by what a person types, for lines such as `running: run submit`."""
    lines = [(module, words.split()) for module, _, words in (line.partition(": ") for line in of_modules)]
    return {word: f"{module}.{word.replace('-', '_')}" for module, words in lines for word in words}


HEADINGS: Mapping[str, Mapping[str, str]] = {
    "Begin": _places("running: demo", "specs: init plan", "running: run submit resume stop wait"),
    "Look": _places(
        "tree: runs",
        "run_listing: query",
        "ranking: leaderboard compare",
        "reporting: report board cost check",
    ),
    "Use": _places(
        "models: models",
        "predicting: predict",
        "evaluating: evaluate",
        "predicting: fill-mask next-sentence embed",
        "evaluating: search",
        "predicting: serve",
    ),
    "Data": _places("text: corpus tokenizer", "specs: schema"),
    "House": _places("maintenance: db gc cluster doctor verify-resume", "tree: help completion"),
}
"""Module and name of each command, by heading and by what a person types."""
RUNS = {"list": "run_listing.list_runs"} | _places(
    "runs: show trials metrics plot logs", "run_editing: edit rm restore", "runs: reproduce export"
)
"""Module and name of each command of `runs`: each is loaded alone."""
PLACES = {name: place for commands in HEADINGS.values() for name, place in commands.items()}
_INSTEAD: Mapping[str, str] = {
    "`orchestrator runs list`": "ps, ls, history, experiments, jobs",
    "`orchestrator models list`": "models ls",
    "`orchestrator runs list`, or `orchestrator runs show RUN`": "status",
    "`orchestrator runs show RUN`": "describe",
    "`orchestrator runs show RUN`, or `orchestrator models show MODEL`": "show",
    "`orchestrator runs logs RUN`": "log",
    "`orchestrator runs rm RUN`": "delete, remove",
    "a model goes with its run: `orchestrator runs rm RUN`": "models rm, models remove, models delete",
    "`orchestrator runs list --removed`, `orchestrator runs restore RUN`": "trash, removed, undo",
    "`orchestrator runs edit RUN --tag|--note|--pin|--archive`": "tag, untag, note, pin, unpin, archive, unarchive",
    "`orchestrator run SPEC.yaml`": "train, pretrain, finetune, fine-tune, sweep, tune, start, launch",
    "`orchestrator plan SPEC.yaml`": "run --dry-run",
    "`orchestrator stop RUN`": "kill, cancel",
    "`orchestrator leaderboard TASK`": "best",
    "`orchestrator leaderboard TASK --all` lists groups, `orchestrator compare A B` compares": "groups",
    "`orchestrator compare A B`": "diff, models compare",
    "`orchestrator check`": "published",
    "`orchestrator board`": "ui, dashboard, server",
    "`orchestrator models`": "download, model",
    "`orchestrator models show MODEL -o README.md`": "models card",
    "`orchestrator models alias NAME@ALIAS --rm`": "models unalias",
    "`orchestrator models lineage NAME --down`": "models descendants",
    "`orchestrator evaluate MODEL TASK`": "test, eval, score",
    "`orchestrator search MODEL TASK --pairs FILE`": "mine",
    "`orchestrator init FILE`": "new",
    "`orchestrator db upgrade`": "migrate",
    "`orchestrator db check`": "db current",
    "`orchestrator db backup FILE`": "db export",
    "`orchestrator db merge FILE`": "db import",
    "`ray rsync-down`, then `orchestrator db merge FILE` (`orchestrator help cluster` has the lines)": "cluster pull",
    "`ray up cluster.yaml`": "cluster up",
    "`orchestrator gc`": "clean, prune",
    "`orchestrator doctor`": "info",
    "`orchestrator help environment`": "config",
    "`orchestrator --version`": "version",
    "`-f json`": "--json",
    "`-f csv`": "--csv",
}
HINTS: Mapping[str, str] = {word: use for use, words in _INSTEAD.items() for word in words.split(", ")}
"""Commands and options of other programs, and of earlier versions, with what to use here.

A command of another group is found without a hint: `logs` is `runs logs`, `runs stop` is `stop`.
"""
COMPLETION_VARIABLE = "_ORCHESTRATOR_COMPLETE"
"""Set by a shell that asks for its completion script (`bash_source`) or completes a command line (`bash_complete`)."""
_MAX_WIDTH = 100
"""Width in characters of text on a wide terminal."""


class FirstPage(GlobalOptionsGroup):
    """Group of all commands, under their headings."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = formatter.width - 4 - max(map(len, PLACES))
        for heading, names in HEADINGS.items():
            commands = ((name, self.get_command(ctx, name)) for name in names)
            with formatter.section(heading):
                formatter.write_dl([(name, one.get_short_help_str(width)) for name, one in commands if one])


@click.group(
    cls=FirstPage,
    places=PLACES,
    show_global_options=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
@click.version_option(__version__, prog_name="orchestrator")
def cli() -> None:
    """A laboratory for BERT on Ray: pretraining, fine-tuning sweeps, and a SQL record of every run.

    A spec is a YAML file that describes a run. Start with `orchestrator demo`, or with `orchestrator init FILE` for
    data of your own. Every command has --help; `orchestrator help` lists topics.
    """


@click.group(cls=GlobalOptionsGroup, places=RUNS)
def runs() -> None:
    """Manage recorded runs.

    RUN is a name (its newest run), an id, or four or more characters of its start.
    """


def message_of(error: click.ClickException) -> str:
    """The message of an error, with what to use in place of a command or an option that is not there."""
    if not isinstance(error, click.NoSuchCommand | click.NoSuchOption) or error.ctx is None:
        return error.format_message()
    name = error.command_name if isinstance(error, click.NoSuchCommand) else error.option_name
    words = f"{error.ctx.command_path.partition(' ')[2]} {name}".strip()
    hint, group = HINTS.get(words) or HINTS.get(name), error.ctx.command
    if isinstance(error, click.NoSuchOption):
        shown = [*cli.params, *(one for one in group.params if not getattr(one, "hidden", False))]
        own = {word for one in shown for word in (*one.opts, *one.secondary_opts)}
        near = [word for word in error.possibilities or () if word in own]
        behind = ", after the command" if isinstance(group, click.Group) else ""
        without = click.NoSuchOption(name, possibilities=near, ctx=error.ctx).format_message()
        return f"no such option {name}: {hint}{behind}" if hint else without
    if hint:
        return f"no such command `{words}`: {hint}"
    from orchestrator.base.nearest import nearest

    assert isinstance(group, click.Group)
    members = {own: group.get_command(error.ctx, own) for own in group.list_commands(error.ctx)}
    groups = {own: one for own, one in members.items() if isinstance(one, click.Group)}
    near = [f"{own} {name}" for own, one in groups.items() if one.get_command(error.ctx, name)]
    near = near or nearest(name, [*members, *(error.possibilities or ())], 2)
    if group is not cli and name in PLACES:
        near = [f"`orchestrator {name}`"]
    return f"no such command `{words}`" + (f"; did you mean {' or '.join(near)}?" if near else "")


def load_topics() -> dict[str, str]:
    """The text of every topic of `orchestrator help` by its name, sorted; its first line is its title."""
    found = sorted(Path(__file__).with_name("topics").glob("*.md"))
    return {path.stem: path.read_text(encoding="utf-8") for path in found}


def _context_of(words: Sequence[str]) -> click.Context | None:
    """The context of a command's help; None where the words name no command."""
    context = click.Context(cli, info_name="orchestrator", **cli.context_settings)
    for word in words:
        group = context.command
        member = group.get_command(context, word) if isinstance(group, click.Group) else None
        if member is None:
            return None
        context = click.Context(member, info_name=word, parent=context)
    return context


@command("help", example="help exit-status\nhelp runs show")
@click.argument("words", metavar="[TOPIC|COMMAND ...]", nargs=-1)
def help(words: tuple[str, ...]) -> None:
    """Show help for a command or topic, or list the topics."""
    topics = load_topics()
    if not words:
        rows = [{"topic": name, "about": text.partition("\n")[0].removeprefix("# ")} for name, text in topics.items()]
        show_rows(rows, ["topic", "about"])
        notify("\nsee one with: orchestrator help TOPIC; a command with: orchestrator help COMMAND")
        return
    context, topic = _context_of(words), topics.get("-".join(words).lower())
    if context is None and topic is None:
        root = click.get_current_context().find_root()
        raise click.NoSuchCommand(" ".join(words), possibilities=topics, ctx=root)
    if context is not None:
        show_text(context.get_help())
    if context is not None and topic is not None:
        show_text("\n")
    if topic is not None and not is_terminal(sys.stdout):
        show_text(topic)
    elif topic is not None:
        from rich.console import Console
        from rich.markdown import Markdown
        from rich.theme import Theme

        console = Console(file=sys.stdout, theme=Theme({"markdown.code": "cyan", "markdown.code_block": "cyan"}))
        console.print(Markdown(topic, code_theme="bw"), width=min(console.width, _MAX_WIDTH))


@command(example="completion bash >> ~/.bashrc\ncompletion zsh >> ~/.zshrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a shell completion script.

    Append it to the shell's startup file as below and open a new terminal. Tab then completes commands, options, run
    ids, models, tasks, metrics and spec fields (`orchestrator run SPEC.yaml recipe.` and Tab). In zsh, completion must
    be enabled first (`autoload -U compinit; compinit`); for fish: `orchestrator
    completion fish > ~/.config/fish/completions/orchestrator.fish`.
    """
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None, "click knows the shells that this command takes"
    show_text(complete(cli, {}, "orchestrator", COMPLETION_VARIABLE).source())
