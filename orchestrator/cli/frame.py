"""Parts that commands share: the global options, in front of or after any command, and an example in the help."""

import os
import shlex
from collections.abc import Collection
from typing import Any

import click
from click.shell_completion import CompletionItem

from orchestrator.cli.messages import notify
from orchestrator.cli.reading import check_output
from orchestrator.cli.tree import HINTS
from orchestrator.run_ids import check_name
from orchestrator.settings import ASKED_AT_VARIABLE, Settings, has_password, without_password

_META = "orchestrator.options"
_GLOBAL_OPTIONS = {
    "home": ("DIR", "Local state and caches. [env: ORCHESTRATOR_HOME; default: ./.orchestrator]"),
    "storage": (
        "URI",
        "Shared folder or bucket for artifacts. [env: ORCHESTRATOR_STORAGE; default: storage in --home]",
    ),
    "registry": (
        "URL",
        "Path or URL of the registry; file:PATH reads the URL from a private file. [env: ORCHESTRATOR_REGISTRY; "
        "default: a SQLite file in --home]",
    ),
    "address": (
        "ADDRESS",
        "Ray cluster: HOST:PORT, or its dashboard's URL. [env: RAY_ADDRESS; default: a local one is started]",
    ),
}


_MEANT = {
    "RUN": "a run's name (its newest run), id, or 4+ characters of its start",
    "MODEL": "registered name, NAME@VERSION, NAME@ALIAS, run, folder or Hub id",
}
"""Meanings of words in a command's usage, for the end of its help."""
_SHOWN_PASSWORD = (
    "the password in --registry stands in this machine's list of processes and in your shell's history; put the URL "
    "into a file with mode 0600 and give --registry file:PATH"
)


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        context.meta.setdefault(_META, {})[parameter.name] = value
        if parameter.name == "registry" and has_password(value) and not context.resilient_parsing:
            notify(_SHOWN_PASSWORD)


def _global_options(*, hidden: bool) -> list[click.Parameter]:
    options: list[click.Parameter] = [
        click.Option([f"--{name}"], metavar=metavar, help=text, expose_value=False, hidden=hidden, callback=_remember)
        for name, (metavar, text) in _GLOBAL_OPTIONS.items()
    ]
    options.append(
        click.Option(
            ["--debug"],
            is_flag=True,
            help="Show tracebacks and warnings.",
            expose_value=False,
            hidden=hidden,
            callback=_remember,
        )
    )
    return options


def refuse_options(names: Collection[str], reason: str) -> None:
    """Refuse options of the running command that were given and concern nothing here. Raises: UsageError."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = str(parameter.name)
        if name in names and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]} {reason}; leave it out", context)


def current_settings() -> Settings:
    """Settings of the command that is running."""
    return settings_of(click.get_current_context())


def settings_of(context: click.Context) -> Settings:
    """Settings of a command: of the one that is running, or of one that a shell completes."""
    given = context.meta.get(_META, {})
    return Settings.from_options(**{name: given.get(name) for name in _GLOBAL_OPTIONS})


def _is_debugging() -> bool:
    """Whether the command that is running was asked for tracebacks."""
    return bool(click.get_current_context().meta.get(_META, {}).get("debug"))


def given_options() -> str:
    """Global options of the command that is running, as a person would type them again: ` --home DIR`, or nothing.

    A password is never repeated: `***` stands in its place. Where the command came from elsewhere, the address is the
    one by which that person reaches the cluster.
    """
    given = {"address": os.environ.get(ASKED_AT_VARIABLE), **click.get_current_context().meta.get(_META, {})}
    return "".join(
        f" --{name} {shlex.quote(without_password(given[name]))}" for name in _GLOBAL_OPTIONS if given.get(name)
    )


def resume_command(run_id: str) -> str:
    """The command that goes on with a run, as the person would type it who asked for the command that is running."""
    verb = "submit --resume" if os.environ.get(ASKED_AT_VARIABLE) else "resume"
    return f"orchestrator{given_options()} {verb} {run_id}"


class GlobalOptionsCommand(click.Command):
    """Command that also takes the global options; its help ends with an example."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example
        for parameter in self.params:
            if parameter.metavar is None and isinstance(parameter.type, click.types.IntParamType | click.FloatRange):
                parameter.metavar = "N" if isinstance(parameter.type, click.types.IntParamType) else "X"
        self.params.extend(_global_options(hidden=True))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. Raises: UsageError, for an option of another program with what to use here."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            words = " ".join([*ctx.command_path.split()[1:], error.option_name])
            hint = HINTS.get(words) or HINTS.get(error.option_name)
            if hint is None:
                raise
            raise click.UsageError(f"no such option {error.option_name}: {hint}", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command: here, or on the head of the cluster whose dashboard the settings name."""
        from orchestrator.cli.on_head import status_on_head

        status = status_on_head(ctx, current_settings, debug=_is_debugging())
        return super().invoke(ctx) if status is None else status

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """The words that a shell is offered: the command's own options, and the global ones."""
        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            found += [
                CompletionItem(name, help=getattr(option, "help", None))
                for option in _global_options(hidden=False)
                for name in option.opts
                if name.startswith(incomplete)
            ]
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, and where the global ones are explained."""
        super().format_options(ctx, formatter)
        options = ", ".join(f"--{name}" for name in (*_GLOBAL_OPTIONS, "debug"))
        formatter.write(f"  Also {options}; see orchestrator -h\n")
        if any(parameter.name == "columns" for parameter in self.params):
            formatter.write("  More on output: orchestrator help output\n")
        named = {(parameter.metavar or "").strip("[].… ").partition("|")[0] for parameter in self.params}
        for word in named & _MEANT.keys() if " models " not in f" {ctx.command_path} " else ():
            formatter.write(f"  {word}: {_MEANT[word]}\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example as a person would type it."""
        if self.example:
            with formatter.section("Example"):
                for line in self.example.strip().splitlines():
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


class WritingCommand(GlobalOptionsCommand):
    """Command that writes one file or folder, which `-o/--output` names."""

    def __init__(self, *args: Any, what: str = "FILE", output_help: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.what = what
        self.params.append(
            click.Option(["-o", "--output"], metavar=what, help=f"{output_help} [required]")
        )  # checked below

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line, and check the place to write."""
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            if "extra argument" in error.message:
                raise click.UsageError(f"{error.message}; -o names the {self.what} to write", ctx) from None
            raise
        if not ctx.resilient_parsing:
            output = ctx.params.get("output")
            if output is None:
                raise click.UsageError(f"-o {self.what} is missing; name one {self.what} to write", ctx)
            if self.what == "FILE":
                check_output(output)
        return rest


class GlobalOptionsGroup(click.Group):
    """Group of commands; its members are `GlobalOptionsCommand`s."""

    command_class = GlobalOptionsCommand

    def __init__(self, *args: Any, show_global_options: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_global_options(hidden=not show_global_options))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the member that the first word names. Raises: UsageError, with the nearest or another program's word."""
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing and not args[0].startswith("-"):
            words = " ".join([*ctx.command_path.split()[1:], args[0]])
            raise click.UsageError(f"no such command `{words}`{self._hint(ctx, words)}", ctx)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. Raises: UsageError, for an option of another program with what to use here."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in HINTS:
                raise
            hint = HINTS[error.option_name]
            raise click.UsageError(f"no such option {error.option_name}: {hint}, after the command", ctx) from None

    def _hint(self, ctx: click.Context, words: str) -> str:
        """Ending of a message about a command that is not there: what to use, or the nearest ones."""
        from orchestrator.nearest import nearest

        if words in HINTS:
            return f": {HINTS[words]}"
        name = words.rpartition(" ")[2]
        groups = {own: self.get_command(ctx, own) for own in self.list_commands(ctx)}
        below = [own for own, one in groups.items() if isinstance(one, click.Group) and one.get_command(ctx, name)]
        near = [f"{own} {name}" for own in below] or nearest(name, groups, 2)
        return f"; did you mean {' or '.join(near)}?" if near else f"; see `{ctx.command_path} --help`"

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the members in the order in which they were added, which is the order of use."""
        return list(self.commands)


def _checked_name(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else check_name(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


name_option = click.option(
    "--name", callback=_checked_name, metavar="NAME", help="Name of the run. Default: that of the spec."
)
nice_option = click.option("--nice", is_flag=True, help="Low CPU priority (local runs only).")
spec_argument = click.argument("spec_path", metavar="SPEC.yaml")
overrides_argument = click.argument("overrides", metavar="[KEY=VALUE ...]", nargs=-1)
precision_option = click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16"]),
    default="fp32",
    show_default=True,
    help="Floating-point precision; bf16 is faster on a GPU.",
)
