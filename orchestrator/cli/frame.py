"""Classes of commands: global options in front of or after any command, and an example at the end of the help.

Commands that a group names by `places` are imported when they are asked for, so that each loads alone. By a dashboard's
address alone, commands that read the record run on the cluster's head, and what they say comes back from there.
"""

import os
import shlex
import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrator.base.console import ignoring_broken_pipe
from orchestrator.base.settings import (
    ADDRESS_VARIABLE,
    API_ADDRESS_VARIABLE,
    ASKED_AT_VARIABLE,
    Settings,
    has_password,
    without_password,
)
from orchestrator.cli.messages import notify, say_now
from orchestrator.cli.output import write_file
from orchestrator.cli.reading import READING

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])
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


class _Text(click.types.StringParamType):
    """Text that is not empty where an option has it; a shell is offered words by the name that the help gives it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "" and isinstance(param, click.Option) and param.default != "":
            self.fail("it is empty; give a value, or leave the option out", param, ctx)
        return super().convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem[str]]":
        from orchestrator.cli.completion import complete

        try:
            return complete(param, ctx, current_settings(ctx).registry, incomplete)
        except Exception:  # a person who presses Tab has asked for no message
            return []


def _global_options(*, hidden: bool) -> list[click.Parameter]:
    given: Any = {"expose_value": False, "hidden": hidden, "callback": _remember}
    return [
        *(
            click.Option([f"--{name}"], metavar=metavar, help=text, type=_Text(), **given)
            for name, (metavar, text) in _GLOBAL_OPTIONS.items()
        ),
        click.Option(["--debug"], is_flag=True, help="Show tracebacks and warnings.", **given),
    ]


_SHOWN, _HIDDEN = _global_options(hidden=False), _global_options(hidden=True)


def refuse_options(names: Collection[str], reason: str) -> None:
    """Refuse options of the running command that were given and concern nothing here. Raises: UsageError."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = str(parameter.name)
        if name in names and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]} {reason}; leave it out", context)


def current_settings(context: click.Context | None = None) -> Settings:
    """Settings of the command that is running, or of one that a shell completes."""
    given = (context or click.get_current_context()).meta.get(_META, {})
    return Settings.from_options(**{name: given.get(name) for name in _GLOBAL_OPTIONS})


def given_options() -> str:
    """Global options of the running command, as a person would type them again: ` --home DIR`, or nothing.

    `***` stands for a password. The address is the one by which the person who asked reaches the cluster.
    """
    given = {"address": os.environ.get(ASKED_AT_VARIABLE), **click.get_current_context().meta.get(_META, {})}
    return "".join(
        f" --{name} {shlex.quote(without_password(given[name]))}" for name in _GLOBAL_OPTIONS if given.get(name)
    )


def resume_command(run_id: str) -> str:
    """The command that goes on with a run, as the person who asked for the running command would type it."""
    verb = "submit --resume" if os.environ.get(ASKED_AT_VARIABLE) else "resume"
    return f"orchestrator{given_options()} {verb} {run_id}"


ON_HEAD = {
    *("plan", "stop", "wait", "runs", "query", "leaderboard", "compare", "report"),
    *("cost", "check", "models", "gc", "doctor", "db"),
}
"""Commands and groups that run where the registry and the storage are."""
ON_THIS_MACHINE = {
    *("resume", "board", "evaluate", "predict", "serve", "fill-mask", "next-sentence", "embed", "search"),
    *("runs reproduce", "models export", "db backup", "db merge"),
}
"""Commands that read a registry and run on this machine alone; each other command needs no registry."""


def _status_on_head(context: click.Context, *, debug: bool) -> int | None:
    """Run a command on the head of the cluster whose dashboard the settings name; None where it runs here.

    Raises: UsageError for a command that cannot run there; ClusterError.
    """
    words = context.command_path.split()[1:]
    path = " ".join(words)
    stays = bool({path, words[0]} & ON_THIS_MACHINE)
    if not stays and words[0] not in ON_HEAD:
        return None
    settings = current_settings()
    if not settings.address and API_ADDRESS_VARIABLE not in os.environ:
        return None
    from orchestrator.cluster.connection import head_dashboard

    address = head_dashboard(settings)
    if address is None:
        return None
    if stays:
        if settings.address is None:  # the variable is meant for `submit`
            return None
        raise click.UsageError(
            f"`{context.command_path}` works on this machine alone, and {address} is a cluster's dashboard; leave "
            "that address out, or say by --registry which registry is read from here. `submit` carries runs "
            "out on the cluster, `submit --resume` goes on with them there.",
            context,
        )
    if path == "runs logs" and context.params["follow"]:
        from orchestrator.execution.jobs import exit_status, find_job, follow

        job = find_job(context.params["run_id"], address)
        return exit_status(follow(job, lambda text: click.echo(text, nl=False)), job.id)
    return _run_there(context, [*words, *(["--debug"] if debug else [])], settings, address)


def _run_there(context: click.Context, words: list[str], settings: Settings, address: str) -> int:
    """Run the command on the head: a spec goes along as a file, and the file that `-o` names comes back."""
    from orchestrator.execution.head_commands import ask_head

    values, files, returned = context.params | context.meta.get(READING, {}), {}, None
    if "spec_path" in values:
        from orchestrator.execution.jobs import SPEC_FILE, spec_files
        from orchestrator.specs.loading import load_spec

        files = spec_files(load_spec(values["spec_path"], values.pop("overrides")))
        values["spec_path"] = SPEC_FILE
    if output := values.get("output"):
        values["output"] = returned = Path(output).name
    say_now(f"asking the head of the cluster at {address}")
    answer = ask_head([*words, *_typed(context.command, values)], settings, address, files=files, returned=returned)
    click.echo(answer.out, nl=False)
    sys.stdout.flush()
    with ignoring_broken_pipe(sys.stderr):
        click.echo(answer.err, nl=False, err=True)
    if output and answer.file is not None:
        write_file(output, answer.file)
    return answer.status


def _typed(command: click.Command, values: dict[str, Any]) -> list[str]:
    """Options and arguments of a command, as a person would type them for some values of its parameters."""
    options, arguments = list[str](), list[str]()
    for parameter in command.params:
        value = values.get(parameter.name or "")
        if value is None:
            continue
        if value is False:  # what turns a flag off, where there is such a word
            options += parameter.secondary_opts[:1]
            continue
        texts = [str(one) for one in value] if isinstance(value, tuple) else [str(value)]
        if isinstance(parameter, click.Argument):
            arguments += texts
        elif value is True:
            options.append(parameter.opts[0])
        else:
            options += [word for text in texts for word in (parameter.opts[0], text)]
    return [*options, *(["--", *arguments] if arguments else [])]


class GlobalOptionsCommand(click.Command):
    """Command that also takes the global options; its help ends with an example, given without the program's name."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example
        for parameter in self.params:
            if parameter.metavar is None and isinstance(parameter.type, click.types.IntParamType | click.FloatRange):
                parameter.metavar = "N" if isinstance(parameter.type, click.types.IntParamType) else "X"
            if type(parameter.type) is click.types.StringParamType:
                parameter.type = _Text()
        self.params.extend(_HIDDEN)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command: here, or on the head of the cluster whose dashboard the settings name."""
        given = ctx.meta.get(_META, {})
        if given.get("address") or os.environ.get(ADDRESS_VARIABLE) or API_ADDRESS_VARIABLE in os.environ:
            status = _status_on_head(ctx, debug=bool(given.get("debug")))
            if status is not None:
                return status
        return super().invoke(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        found = super().shell_complete(ctx, incomplete)
        own = click.Command(None, params=_SHOWN, add_help_option=False).shell_complete(ctx, incomplete)
        return [*found, *own]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        options = ", ".join(f"--{name}" for name in (*_GLOBAL_OPTIONS, "debug"))
        formatter.write(f"  Also {options}; see orchestrator -h\n")
        if any(parameter.name == "columns" for parameter in self.params):
            formatter.write("  More on output: orchestrator help output\n")
        named = {(parameter.metavar or "").strip("[].… ").partition("|")[0] for parameter in self.params}
        for word in named & _MEANT.keys() if " models " not in f" {ctx.command_path} " else ():
            formatter.write(f"  {word}: {_MEANT[word]}\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.example:
            with formatter.section("Example"):
                for line in self.example.splitlines():
                    program = "" if line.startswith(" ") else "orchestrator "
                    formatter.write(f"{'':>{formatter.current_indent}}{program}{line}\n")


class GlobalOptionsGroup(click.Group):
    """Group of commands, whose members are `GlobalOptionsCommand`s.

    Args:
        places: module and name of each member that is imported when it is asked for, in the order of use.
    """

    command_class = GlobalOptionsCommand

    def __init__(
        self, *args: Any, places: Mapping[str, str] | None = None, show_global_options: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._places = places or {}
        self.params.extend(_SHOWN if show_global_options else _HIDDEN)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(dict.fromkeys([*self._places, *self.commands]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a member where it has not been; None for a name that no member has."""
        if cmd_name in self._places and cmd_name not in self.commands:
            module, _, attribute = self._places[cmd_name].rpartition(".")
            self.commands[cmd_name] = getattr(import_module(f"orchestrator.cli.{module}"), attribute)
        return super().get_command(ctx, cmd_name)


spec_argument = click.argument("spec_path", metavar="SPEC.yaml")
overrides_argument = click.argument("overrides", metavar="[KEY=VALUE ...]", nargs=-1)
precision_option = partial(
    click.option,
    "--precision",
    type=click.Choice(["auto", "fp32", "bf16"]),
    help="Floating-point format; auto: bf16 where the device supports it natively, else fp32.",
)


port_option = partial(
    click.option, "--port", type=click.IntRange(0, 65535), metavar="PORT", help="Port; 0 for any free one."
)


def command(name: str | None = None, *, example: str) -> Callable[[Callable[..., Any]], GlobalOptionsCommand]:
    """Make a command of a function, by default with the function's name."""
    return click.command(name, cls=GlobalOptionsCommand, example=example)
