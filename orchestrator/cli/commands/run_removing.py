"""`runs rm`, which removes runs that a person names, `runs trash` and `runs restore`."""

import click

from orchestrator.cli.confirming import is_confirmed
from orchestrator.cli.frame import GlobalOptionsCommand, current_settings, given_options
from orchestrator.cli.messages import notify, say_now
from orchestrator.cli.output import show_rows
from orchestrator.cli.reading import output_options, reading_options
from orchestrator.errors import InputError
from orchestrator.progress import counted

_COLUMNS = ["id", "name", "kind", "state", "trials", "num_bytes"]
_TRASH_COLUMNS = ["id", "name", "kind", "trials", "num_bytes", "removed_at", "storage_path"]


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator runs rm 7f3a 9c21 --dry-run\norchestrator runs rm 7f3a --yes",
)
@click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", is_flag=True, help="Remove without asking.")
@click.option("--now", "at_once", is_flag=True, help="Delete for good, in place of putting them into the trash.")
@click.option("--force", is_flag=True, help="Remove also what is registered, or the best of its group.")
@output_options
def rm(
    run_ids: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    at_once: bool,
    force: bool,
    form: str | None,
    output: str | None,
) -> None:
    """Remove runs, with their trials; a pipeline with its stages.

    They go into the trash: `runs restore` brings them back as they were, until `gc` deletes their files. With --now
    files and record are deleted at once. Runs at work stay, pinned ones too, and so does what others rest on: a run
    that was the start of another one, or a stage of a pipeline that may go on. So do, without --force, a run whose
    model is registered and one with the best trial of its group; of these `gc` deletes what nothing needs. Of several
    RUNs either all go or none, and a name must be that of one run alone. A stage that another pipeline uses, or that a
    run outside started from, stays when its pipeline goes.
    """
    say_now("looking for what other runs need")
    from orchestrator.cli.commands.registry_reading import find_run, open_registry
    from orchestrator.execution.garbage import find_removals, remove_runs
    from orchestrator.progress import size_text

    settings = current_settings()
    with open_registry() as registry:
        found = [find_run(registry, run_id, only=True).id for run_id in run_ids]
    removals = find_removals(found, settings, force=force)
    staying = [one for one in removals if one.needed]
    removals = [one for one in removals if not one.needed]
    refused = [f"run {one.run.id} ({one.run.name}) stays: {one.refusal}" for one in removals if one.refusal]
    if refused:
        raise InputError("\n".join(refused) + "\nnothing was removed")
    rows = [
        {**vars(one.run), "state": one.run.state, "trials": one.num_trials, "num_bytes": one.num_bytes}
        for one in removals
    ]
    show_rows(rows, _COLUMNS, form, output, spare=["kind", "trials"])
    for one in staying:
        notify(f"stage {one.run.id} ({one.run.name}) stays: {one.needed}")
    total = f"{counted(len(removals), 'run')}, {size_text(sum(one.num_bytes for one in removals))}"
    if not is_confirmed("remove", total, dry_run=dry_run, yes=yes):
        return
    gone = list(remove_runs(removals, settings, at_once=at_once))
    size = size_text(sum(one.num_bytes for one in gone))
    if at_once or not gone:
        notify(f"removed {counted(len(gone), 'run')}, {size}")
    else:
        notify(f"{counted(len(gone), 'run')} in the trash now; `orchestrator gc` frees {size}, until then:")
        named = [one.run.id for one in gone if not one.is_stage] or [one.run.id for one in gone]
        notify("\n".join(f"  orchestrator{given_options()} runs restore {run_id}" for run_id in named))


@click.command(cls=GlobalOptionsCommand, example="orchestrator runs trash")
@reading_options
def trash(form: str | None, output: str | None) -> None:
    """Show removed runs, and the room that their files take."""
    from orchestrator.cli.commands.registry_reading import open_registry

    with open_registry() as registry:
        records = registry.trash.records()
    rows = [{"id": one.run_id, "trials": one.num_trials, **vars(one)} for one in records]
    show_rows(rows, _TRASH_COLUMNS, form, output, empty="the trash is empty", spare=["kind", "trials"])
    if records:
        from orchestrator.progress import size_text

        size = size_text(sum(one.num_bytes for one in records))
        notify(f"{counted(len(records), 'run')}, {size}; `orchestrator gc` deletes them for good")


@click.command(cls=GlobalOptionsCommand, example="orchestrator runs restore 7f3a")
@click.argument("run_ids", metavar="REMOVED...", nargs=-1, required=True)
def restore(run_ids: tuple[str, ...]) -> None:
    """Bring runs back from the trash, a pipeline with its stages.

    Their trials, models, notes and tags come with them. REMOVED is the id of a run in the trash, its first characters,
    or its name.
    """
    say_now("restoring")
    from orchestrator.cli.commands.registry_reading import open_registry
    from orchestrator.registry import Registry
    from orchestrator.storage import exists

    open_registry().close()  # a mistyped path is told, not made
    with Registry(current_settings().registry) as registry:
        named = [registry.trash.find(run_id) for run_id in run_ids]
        stages = [stage for one in named if one.kind == "pipeline" for stage in registry.trash.stages_of(one.run_id)]
        # A pipeline after its stages: whoever is interrupted can do so again.
        for one in {one.run_id: one for one in (*stages, *named)}.values():
            registry.trash.restore(one.run_id)
            notify(f"restored {one.kind} {one.run_id} ({one.name})")
            if one.storage_path is not None and not exists(one.storage_path):
                notify(f"  its files are gone: {one.storage_path}")
