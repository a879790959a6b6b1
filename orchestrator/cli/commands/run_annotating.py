"""Commands of `runs` by which people add to what is recorded: `note`, `tag`, `pin`, `archive`, and their opposites."""

import getpass
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.commands.registry_reading import find_run, open_registry
from orchestrator.cli.frame import GlobalOptionsCommand, current_settings, given_options
from orchestrator.cli.messages import notify
from orchestrator.cli.output import show_rows
from orchestrator.cli.reading import reading_options
from orchestrator.progress import counted

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.marks import Flag
    from orchestrator.registry.records import RunRecord

_CLEARED_BY: "dict[Flag, str]" = {"archived": "unarchive", "pinned": "unpin"}
"""Command that clears each flag."""
_run_argument = click.argument("run_id", metavar="RUN")
_runs_argument = click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
_tags_argument = click.argument("tags", metavar="TAG...", nargs=-1, required=True)


def _open_for_writing() -> "Registry":
    """Open the registry of the command's options, which must be there: nothing is noted in a new one."""
    from orchestrator.registry import Registry

    open_registry().close()
    return Registry(current_settings().registry)


@click.command(
    cls=GlobalOptionsCommand,
    example='orchestrator runs note 7f3a "the learning rate was too high"\norchestrator runs note 7f3a',
)
@_run_argument
@click.argument("text", required=False)
@click.option("--rm", "number", type=click.IntRange(1), metavar="N", help="Remove the Nth note.")
@reading_options
def note(run_id: str, text: str | None, number: int | None, form: str | None, output: str | None) -> None:
    """Note something on a run, or show its notes.

    The same text is one note, however often it is written.
    """
    if text is not None and number is not None:
        raise click.UsageError("either a text to note, or --rm N")
    if text is None and number is None:
        _show_notes(run_id, form, output)
        return
    with _open_for_writing() as registry:
        run = find_run(registry, run_id)
        if text is not None:
            registry.annotations.note(run.id, text, _user())
            notify(f"noted on {run.kind} {run.id} ({run.name})")
        elif number is not None:
            notify(f"removed from {run.id}: {registry.annotations.remove_note(run.id, number).text}")


def _show_notes(run_id: str, form: str | None, output: str | None) -> None:
    with open_registry() as registry:
        run = find_run(registry, run_id)
        notes = registry.annotations.notes(run.id)
    rows = [{"note": number, **vars(one)} for number, one in enumerate(notes, 1)]
    empty = f'no notes on run {run.id}; orchestrator runs note {run.id} "TEXT" writes one'
    show_rows(rows, ["note", "written_at", "author", "text"], form, output, empty=empty)


def add_notes(registry: "Registry", rows: Sequence[dict[str, Any]]) -> None:
    """Add to each row of a run, by its id, the texts of its notes, for `--columns note`; None where it has none."""
    texts: dict[str, list[str]] = {}
    for one in registry.annotations.notes([row["id"] for row in rows]):
        texts.setdefault(one.run_id, []).append(one.text)
    for row in rows:
        row["note"] = "; ".join(texts.get(row["id"], ())) or None


def note_lines(registry: "Registry", run_id: str) -> dict[str, Any]:
    """Fields of a record for the notes on a run: `note.1: 2026-11-23 ann: looks good`."""
    lines = {}
    for number, one in enumerate(registry.annotations.notes(run_id), 1):
        who = f"{one.written_at:%Y-%m-%d}" + (f" {one.author}" if one.author else "")
        lines[f"note.{number}"] = f"{who}: {one.text}"
    return lines


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return None


@click.command(cls=GlobalOptionsCommand, example="orchestrator runs tag 7f3a paper baseline")
@_run_argument
@_tags_argument
def tag(run_id: str, tags: tuple[str, ...]) -> None:
    """Add tags to a run; queries find it by them: tag = 'paper'."""
    with _open_for_writing() as registry:
        run = find_run(registry, run_id)
        registry.annotations.tag(run.id, tags)
        notify(f"tags of {run.id}: {', '.join(registry.tags(run.id))}")


@click.command(cls=GlobalOptionsCommand, example="orchestrator runs untag 7f3a paper")
@_run_argument
@_tags_argument
def untag(run_id: str, tags: tuple[str, ...]) -> None:
    """Take tags from a run."""
    with _open_for_writing() as registry:
        run = find_run(registry, run_id)
        gone = registry.annotations.untag(run.id, tags)
        for missing in sorted(set(tags) - set(gone)):
            others = ", ".join(registry.annotations.bearers(run.id, missing, "tag"))
            notify(f"run {run.id} has {f'the tag {missing!r} with {others}' if others else f'no tag {missing!r}'}")
        notify(f"tags of {run.id}: {', '.join(registry.tags(run.id)) or 'none'}")


def _flag_command(name: str, flag: "Flag", *, sets: bool, says: str, about: str) -> click.Command:
    """Make a command that sets or clears a flag of runs."""

    def run(run_ids: tuple[str, ...]) -> None:
        with _open_for_writing() as registry:
            found = [find_run(registry, run_id) for run_id in run_ids]
            for one in found:
                (registry.annotations.set_flag if sets else registry.annotations.clear_flag)(one.id, flag)
            for one in found:
                _tell_reach(registry, one, flag, sets=sets, says=says)

    made = click.command(name, cls=GlobalOptionsCommand, example=f"orchestrator runs {name} 7f3a")(_runs_argument(run))
    made.help = about
    return made


def _tell_reach(registry: "Registry", run: "RunRecord", flag: "Flag", *, sets: bool, says: str) -> None:
    """Say that a run's flag was set or cleared, of how many stages too, and for which of these it changed nothing."""
    reached = registry.annotations.flagged(flag)
    stages = list(reversed(registry.stages(run.id))) if run.kind == "pipeline" else []
    same = [one for one in (run, *stages) if (one.id in reached) != sets]
    if run not in same:
        num_stages = sum(stage not in same for stage in stages)
        with_stages = f" and its {counted(num_stages, 'stage')}" if num_stages else ""
        notify(f"{says} {run.kind} {run.id} ({run.name}){with_stages}")
    for one in same:
        notify(f"  {one.kind} {one.id} ({one.name}) {_why_the_same(registry, one, flag, sets=sets)}")


def _why_the_same(registry: "Registry", run: "RunRecord", flag: "Flag", *, sets: bool) -> str:
    """Reason why a flag that was set did not reach a run, or why one that was cleared still does."""
    from orchestrator.registry.tables import PIPELINE

    if sets:
        users = [tag.removeprefix(PIPELINE) for tag in registry.tags(run.id) if tag.startswith(PIPELINE)]
        shown = [user.id for user in registry.run_records(users) if user.id not in registry.annotations.flagged(flag)]
        return f"stays as it was, since pipeline {', '.join(sorted(shown))} uses it too"
    bearers = registry.annotations.bearers(run.id, flag)
    if not bearers:
        return f"is no longer {flag}"
    by = "by itself" if bearers[0] == run.id else f"with {', '.join(bearers)}"
    ends = f"orchestrator{given_options()} runs {_CLEARED_BY[flag]} {' '.join(bearers)}"
    return f"is still {flag} {by}; this ends it: {ends}"


def marks_of(registry: "Registry", run_id: str) -> list[str]:
    """Flags of a run; those that it has through another run with that run's id: `archived with 7f3a`."""
    marks = []
    for flag in _CLEARED_BY:
        bearers = registry.annotations.bearers(run_id, flag)
        if bearers:
            marks.append(flag if bearers[0] == run_id else f"{flag} with {bearers[0]}")
    return marks


pin = _flag_command(
    "pin",
    "pinned",
    sets=True,
    says="pinned",
    about="Keep all files of runs.\n\n`gc` and `runs rm` leave them alone, and the data that they have used. A "
    "pipeline's stages are kept with it.",
)
unpin = _flag_command("unpin", "pinned", sets=False, says="unpinned", about="Let `gc` treat runs as any other.")
archive = _flag_command(
    "archive",
    "archived",
    sets=True,
    says="archived",
    about="Put runs away.\n\nLists, queries, leaderboards and the board leave them out, with their trials; --archived "
    "shows them. Nothing is deleted. A pipeline takes its stages with it, but for one that another pipeline uses which "
    "is not archived.",
)
unarchive = _flag_command(
    "unarchive",
    "archived",
    sets=False,
    says="back in lists:",
    about="Show archived runs in lists again.\n\nA pipeline brings its stages back, but for those that were archived "
    "by themselves.",
)
