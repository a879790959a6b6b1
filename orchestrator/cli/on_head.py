"""Commands by a dashboard's address alone: which run on the cluster's head, and what comes back from there."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from orchestrator.cli.messages import say_now
from orchestrator.cli.output import write_file
from orchestrator.cli.reading import READING
from orchestrator.progress import reader_may_leave
from orchestrator.settings import API_ADDRESS_VARIABLE, Settings

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


def status_on_head(context: click.Context, read_settings: Callable[[], Settings], *, debug: bool) -> int | None:
    """Run a command on the head of the cluster whose dashboard the settings name; None where it runs here.

    Raises: UsageError for a command that cannot run there; ClusterError.
    """
    words = context.command_path.split()[1:]
    path = " ".join(words)
    stays = bool({path, words[0]} & ON_THIS_MACHINE)
    if not stays and words[0] not in ON_HEAD:
        return None
    settings = read_settings()
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
    with reader_may_leave(sys.stderr):
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
