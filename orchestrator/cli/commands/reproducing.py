"""`runs reproduce`: the commands that make a run again, or the run itself, made again and compared."""

import shlex
from typing import TYPE_CHECKING

import click

from orchestrator.cells import printable
from orchestrator.cli.commands.registry_reading import find_run, open_registry
from orchestrator.cli.frame import GlobalOptionsCommand, current_settings
from orchestrator.cli.messages import notify, say_now
from orchestrator.cli.output import chosen_form, show_record, show_rows, show_text
from orchestrator.cli.reading import output_options
from orchestrator.settings import Settings, lies_here, without_password

if TYPE_CHECKING:
    from orchestrator.execution.reproduction import Reproduction


@click.command(
    "reproduce",
    cls=GlobalOptionsCommand,
    example="orchestrator runs reproduce 7f3a\norchestrator runs reproduce 7f3a --run",
)
@click.argument("run_id", metavar="RUN")
@click.option("--run", "is_run", is_flag=True, help="Make it again here and now, and compare both.")
@click.option(
    "--show",
    "part",
    type=click.Choice(["spec", "diff"]),
    help="Print its spec, or the uncommitted changes of its code, to be written to a file.",
)
@output_options
def reproduce(run_id: str, is_run: bool, part: str | None, form: str | None, output: str | None) -> int:
    """Print the commands that make a run again.

    Its code, its versions, its spec; and what cannot be made again, and why. With --run it is made again here, with the
    code, libraries and data of now, as a new run; the status is 0 where scores and digests are the same, else 1.
    """
    say_now(f"looking up run {run_id}")
    from orchestrator.execution.reproduction import kept_diff, plan_reproduction, spec_text

    settings = current_settings()
    with open_registry() as registry:
        run_id = find_run(registry, run_id).id
    if part == "diff":
        show_text(kept_diff(run_id, settings), output)
        return 0
    reproduction = plan_reproduction(run_id, settings, program_for_any_folder(settings))
    if part == "spec":
        show_text(spec_text(reproduction), output)
    elif is_run:
        return _run(reproduction, form, output)
    elif chosen_form(form, output) == "json":
        record = {"run": reproduction.run.id, "commands": reproduction.commands}
        show_record(record | {"cannot": reproduction.obstacles, "notes": reproduction.notes}, "json", output)
    else:
        show_text("".join(f"{line}\n" for line in script_lines(reproduction)), output)
    return 0


def program_for_any_folder(settings: Settings) -> str:
    """Call of this program that means the same in every folder: the commands change into those of the run and its code.

    A registry's URL that only the environment gives is not printed: it may hold a password.
    """
    from orchestrator.execution.origin import means_the_same_anywhere

    registry = means_the_same_anywhere(settings).registry
    goes_along = "registry" in settings.typed or ("registry" in settings.given and lies_here(registry))
    options = {
        "home": str(settings.home),
        "storage": settings.storage if "storage" in settings.given else None,
        "registry": registry if goes_along else None,
        "address": settings.address if "address" in settings.typed else None,
    }
    given = [f"--{name} {shlex.quote(without_password(value))}" for name, value in options.items() if value is not None]
    return " ".join(["orchestrator", *given])


def script_lines(reproduction: "Reproduction") -> list[str]:
    """Lines of a shell's script that makes a run again; what it cannot do stands in its comments."""
    run = reproduction.run
    lines = [f"# makes {run.kind} {run.name} (run {run.id}, {run.state}) again"]
    lines += [f"# not the same: {each}" for each in reproduction.obstacles]
    lines += [f"# maybe not the same: {each}" for each in reproduction.notes]
    if reproduction.values is None:
        lines.append("# a pipeline's finished stages would be used again: each stage has a command of its own")
    return [*(printable(line, keep_lines=False) for line in lines), *reproduction.commands]


def _run(reproduction: "Reproduction", form: str | None, output: str | None) -> int:
    from orchestrator.execution.reproduction_run import compare_outcomes, run_reproduction
    from orchestrator.registry import Registry

    settings = current_settings()
    for each in reproduction.obstacles:
        notify(f"not the same: {each}")
    new = run_reproduction(reproduction, settings, on_started=lambda run_id: notify(f"run {run_id}"))
    with Registry(settings.registry, read_only=True) as registry:
        outcomes = compare_outcomes(registry, reproduction.run.id, new.id)
    rows = [
        {"what": each.what, "then": each.then, "now": each.now, "same": "yes" if each.is_same else "no"}
        for each in outcomes
    ]
    show_rows(rows, ["what", "then", "now", "same"], form, output)
    differing = sum(not each.is_same for each in outcomes)
    told = "everything is the same" if not differing else f"{differing} of {len(outcomes)} differ"
    told = told if outcomes else "neither left a result to compare"
    notify(f"run {new.id} makes run {reproduction.run.id} again: {told}")
    return 1 if differing else 0
