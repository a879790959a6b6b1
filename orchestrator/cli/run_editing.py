"""Commands of `runs` that change the record: `edit` (tags, notes, pins, archive), `rm` and `restore`."""

import getpass
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from orchestrator.base.console import counted
from orchestrator.base.errors import InputError
from orchestrator.cli.frame import command, current_settings, given_options
from orchestrator.cli.messages import is_confirmed, notify, say_now
from orchestrator.cli.output import show_rows
from orchestrator.cli.reading import format_options
from orchestrator.cli.registry_reading import find_run, open_for_writing, open_registry

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.records import Flag, RunRecord

_REMOVED_COLUMNS = ["id", "name", "kind", "state", "trials", "num_bytes"]
_runs_argument = click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)


@command(example='runs edit 7f3a --tag +paper,-draft --note "rate too high"\nruns edit 7f3a 9c21 --archive')
@_runs_argument
@click.option("--tag", "tags", metavar="TAG,…", multiple=True, help="Add TAG (or +TAG), or remove it with -TAG.")
@click.option("--note", metavar="TEXT", help="Add a note; an identical note is not repeated.")
@click.option("--rm-note", "removed_note", type=click.IntRange(1), metavar="N", help="Remove the Nth note.")
@click.option("--pin/--unpin", "pinned", default=None, help="Protect all files from `gc` and `runs rm`.")
@click.option("--archive/--unarchive", "archived", default=None, help="Hide from lists and leaderboards.")
def edit(
    run_ids: tuple[str, ...],
    tags: tuple[str, ...],
    note: str | None,
    removed_note: int | None,
    pinned: bool | None,
    archived: bool | None,
) -> None:
    """Edit tags and notes, pin or archive runs.

    Queries find tags: tag = 'paper'. A pinned run keeps its files and the data that it used; an archived one is hidden
    with its trials, and --archived shows it. Both also apply to the stages of a pipeline, except stages shared with a
    pipeline that is not archived. Nothing is deleted.
    """
    changes = [word.strip() for several in tags for word in several.split(",")]
    gone = [word[1:] for word in changes if word.startswith("-")]
    new = [word.removeprefix("+") for word in changes if not word.startswith("-")]
    if not changes and {note, removed_note, pinned, archived} == {None}:
        raise click.UsageError("nothing to change; give --tag, --note, --rm-note, --pin or --archive")
    if removed_note is not None and len(run_ids) > 1:
        raise click.UsageError("--rm-note takes one RUN: notes are numbered by run")
    user: str | None = None
    with open_for_writing() as registry:
        found = [find_run(registry, run_id) for run_id in run_ids]
        for run in found:
            if new:
                registry.annotations.tag(run.id, new)
            had = registry.annotations.untag(run.id, gone) if gone else []
            for missing in sorted(set(gone) - set(had)):
                others = ", ".join(registry.annotations.bearers(run.id, missing, "tag"))
                notify(f"run {run.id} has {f'the tag {missing!r} from {others}' if others else f'no tag {missing!r}'}")
            if changes:
                notify(f"tags of {run.id}: {', '.join(registry.annotations.tags(run.id)) or 'none'}")
            if removed_note is not None:
                notify(f"removed from {run.id}: {registry.annotations.remove_note(run.id, removed_note).text}")
            if note is not None:
                with suppress(OSError, KeyError):  # a container's user without a name
                    user = getpass.getuser()
                registry.annotations.note(run.id, note, user)
                notify(f"noted on {run.kind} {run.id} ({run.name})")
        if pinned is not None:
            _flag(registry, found, "pinned", sets=pinned)
        if archived is not None:
            _flag(registry, found, "archived", sets=archived)


def _flag(registry: "Registry", runs: "Sequence[RunRecord]", flag: "Flag", *, sets: bool) -> None:
    before = registry.annotations.flagged(flag)
    for run in runs:
        (registry.annotations.set_flag if sets else registry.annotations.clear_flag)(run.id, flag)
    flagged = registry.annotations.flagged(flag)
    for run in runs:
        stages = registry.stages(run.id)[::-1] if run.kind == "pipeline" else []
        for one in (run, *stages):
            told = flag if sets else f"no longer {flag}"
            if (one.id in flagged) != sets:
                bearers = ", ".join(registry.annotations.bearers(one.id, flag))
                told = f"not {flag}, as another pipeline uses it" if sets else f"still {flag}, with {bearers}"
            elif (one.id in before) == sets:
                told = f"{flag} already" if sets else f"not {flag}"
            notify(f"{'' if one is run else '  '}{told}: {one.kind} {one.id} ({one.name})")


@command(example="runs rm 7f3a 9c21 --dry-run\nruns rm 7f3a --yes")
@_runs_argument
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@click.option("--now", "at_once", is_flag=True, help="Delete permanently; `runs restore` cannot undo it.")
@click.option("--force", is_flag=True, help="Also registered models and best trials of groups.")
@format_options
def rm(run_ids: tuple[str, ...], dry_run: bool, yes: bool, at_once: bool, force: bool) -> None:
    """Remove runs with their trials, pipelines with their stages.

    `runs restore` undoes it until `gc` deletes the files. Refused for running runs, pinned runs and runs that others
    depend on: the base model of another run, a stage of a pipeline that can be resumed. Either all RUNs are removed or
    none. A name must be unambiguous. A stage that another pipeline or run uses is kept.
    """
    say_now("looking for dependent runs")
    from orchestrator.base.console import size_text
    from orchestrator.execution.removal import find_removals, remove_runs

    settings, own = current_settings(), f"orchestrator{given_options()} "
    with open_registry() as registry:
        found = [find_run(registry, run_id, only=True).id for run_id in run_ids]
    removals = find_removals(found, settings, force=force)
    staying = [one for one in removals if one.needed]
    removals = [one for one in removals if not one.needed]
    refused = [f"run {one.run.id} ({one.run.name}) stays: {one.refusal}" for one in removals if one.refusal]
    if refused:
        raise InputError("\n".join(refused).replace("orchestrator ", own) + "\nnothing was removed")
    rows = [
        {**vars(one.run), "state": one.run.state, "trials": one.num_trials, "num_bytes": one.num_bytes}
        for one in removals
    ]
    show_rows(rows, _REMOVED_COLUMNS, spare=["kind", "trials"])
    for one in staying:
        notify(f"stage {one.run.id} ({one.run.name}) stays: {one.needed}")
    total = f"{counted(len(removals), 'run')}, {size_text(sum(one.num_bytes for one in removals))}"
    if not is_confirmed("remove", total, dry_run=dry_run, yes=yes):
        return
    gone = list(remove_runs(removals, settings, at_once=at_once))
    notify(f"removed {counted(len(gone), 'run')}, {size_text(sum(one.num_bytes for one in gone))}")
    if gone and not at_once:
        named = [one.run.id for one in gone if not one.is_stage] or [one.run.id for one in gone]
        lines = "".join(f"\n  {own}runs restore {run_id}" for run_id in named)
        notify(f"`{own}gc` deletes the files; until then, to undo:{lines}")


@command(example="runs restore 7f3a")
@click.argument("run_ids", metavar="REMOVED...", nargs=-1, required=True)
def restore(run_ids: tuple[str, ...]) -> None:
    """Restore removed runs, pipelines with their stages.

    Trials, models, notes and tags come back with them. REMOVED is the id of a removed run, its first four or more
    characters, or its name: `runs list --removed`.
    """
    say_now("restoring")
    from orchestrator.storage import exists

    with open_for_writing() as registry:
        named = [registry.trash.find(run_id) for run_id in run_ids]
        stages = [stage for one in named if one.kind == "pipeline" for stage in registry.trash.stages_of(one.run_id)]
        # A pipeline after its stages: whoever is interrupted can do so again.
        for one in {one.run_id: one for one in (*stages, *named)}.values():
            registry.trash.restore(one.run_id)
            notify(f"restored {one.kind} {one.run_id} ({one.name})")
            if one.storage_path is not None and not exists(one.storage_path):
                notify(f"  its files are gone: {one.storage_path}")
