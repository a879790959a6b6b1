"""`runs reproduce`: what a person needs to make a run again."""

import click

from orchestrator.cells import printable
from orchestrator.cli.commands.registry_reading import find_run, open_registry
from orchestrator.cli.frame import GlobalOptionsCommand, current_settings
from orchestrator.cli.messages import say_now
from orchestrator.cli.output import chosen_form, show_record, show_text
from orchestrator.cli.reading import output_options


@click.command("reproduce", cls=GlobalOptionsCommand, example="orchestrator runs reproduce 7f3a")
@click.argument("run_id", metavar="RUN")
@click.option(
    "--show",
    "part",
    type=click.Choice(["spec", "diff"]),
    help="Print its spec, or the uncommitted changes of its code, to be written to a file.",
)
@output_options
def reproduce(run_id: str, part: str | None, form: str | None, output: str | None) -> None:
    """Print what it takes to make a run again.

    Its commit and uncommitted changes, its command, spec and versions, and which of its inputs have changed.
    """
    say_now(f"looking up run {run_id}")
    from orchestrator.execution.reproduction import kept_diff, reproduction_facts, spec_text

    with open_registry() as registry:
        run = find_run(registry, run_id)
        if part is not None:
            show_text((kept_diff if part == "diff" else spec_text)(run, registry), output)
            return
        facts = reproduction_facts(run, registry, current_settings())
    if chosen_form(form, output) == "json":
        show_record(facts, "json", output)
        return
    lines = {name: facts[name] for name in ("run", "folder", "command", "spec", "code")}
    lines["checkout"] = facts["commit"] and f"git checkout {facts['commit']}"
    lines["changes"] = facts["uncommitted_changes"]
    lines["versions"] = " ".join(f"{name}=={version}" for name, version in (facts["versions"] or {}).items())
    inputs = [f"{'inputs':10}{line}" for line in facts["changed_inputs"] or ["unchanged"]]
    text = [*(f"{name:10}{value}" for name, value in lines.items() if value), *inputs]
    show_text("".join(f"{printable(line, keep_lines=False)}\n" for line in text), output)
