"""Commands that keep the house: `db` (the registry's database), `gc` (unused files), `schema` (fields of specs)."""

import textwrap
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.frame import GlobalOptionsCommand, GlobalOptionsGroup, current_settings
from orchestrator.cli.messages import is_confirmed, notify, say_now, status_line
from orchestrator.cli.output import show_rows, show_text
from orchestrator.cli.reading import age_s, format_options
from orchestrator.errors import InputError
from orchestrator.progress import counted

if TYPE_CHECKING:
    from orchestrator.registry.merging import Merged
    from orchestrator.specs.documentation import FieldDoc


@click.command(cls=GlobalOptionsCommand, example="orchestrator schema sweep")
@click.argument("kind", required=False)
@format_options
def schema(kind: str | None, form: str | None) -> None:
    """List the kinds of spec, or the fields of KIND.

    A field is `identity` when it changes the result, `execution` when it does not. -f json prints a JSON Schema.
    """
    import json

    from orchestrator.nearest import did_you_mean
    from orchestrator.specs.documentation import document_fields
    from orchestrator.specs.kinds import SPEC_KINDS, spec_class

    if kind is None:
        kinds = [{"kind": name, "about": spec_class(name).title} for name in SPEC_KINDS]
        show_rows(kinds, ["kind", "about"], form, None)
        return
    if kind not in SPEC_KINDS:
        raise InputError(f"{kind!r} is no kind of spec{did_you_mean(kind, SPEC_KINDS)}")
    rows = list(document_fields(spec_class(kind)))
    if form == "json":
        show_text(json.dumps(spec_class(kind).model_json_schema(), indent=2, ensure_ascii=False))
    elif form == "csv":
        show_rows(map(asdict, rows), ["field", "type", "unit", "default", "role", "about"], "csv", None)
    else:
        show_text("\n".join(_described(row) for row in rows))


def _described(row: "FieldDoc") -> str:
    """Two paragraphs on a field: its type and default, and below them what it means."""
    unit = f" ({row.unit})" if row.unit else ""
    default = row.default if row.default in ("required", "left out", "see below") else f"default {row.default}"
    about = textwrap.fill(row.about, 80, initial_indent="    ", subsequent_indent="    ")
    field = f"{row.field}: {row.type}{unit}; {default}; {row.role}"
    return f"{textwrap.fill(field, 80, subsequent_indent=' ' * 8)}\n{about}"


@click.group(cls=GlobalOptionsGroup)
def db() -> None:
    """Maintain the registry's database."""


@db.command(example="orchestrator db upgrade")
@click.option("--no-backup", is_flag=True, help="Skip the backup.")
def upgrade(no_backup: bool) -> None:
    """Migrate the database schema to the newest revision.

    A backup is made first, and its path printed: for SQLite a file beside the registry, for PostgreSQL a `pg_dump` file
    in the folder `backups` of --home.
    """
    from orchestrator.cli.registry_reading import open_registry
    from orchestrator.registry import Registry

    open_registry().close()  # a mistyped path is told, not made
    settings = current_settings()
    with Registry(settings.registry) as registry:
        show_text(registry.upgrade(settings.home / "backups", with_backup=not no_backup))


@db.command(example="orchestrator db check")
@click.option("--mend", is_flag=True, help="Overwrite stored statistics that differ.")
def check(mend: bool) -> None:
    """Check the revision and stored statistics of the registry.

    The leaderboard reads statistics that are stored when a run ends. This recomputes them from the runs and reports
    differences; --mend writes them.
    """
    from orchestrator.cli.registry_reading import open_registry
    from orchestrator.errors import RegistryError
    from orchestrator.registry import Registry

    open_registry().close()  # a mistyped path is told, not made
    with Registry(current_settings().registry, read_only=not mend) as registry:
        differing, revision = registry.check_groups(mend=mend), registry.current_revision() or "empty"
    if differing and not mend:
        which = f"{counted(len(differing), 'group')}, as {differing[0]},"
        raise RegistryError(f"numbers of {which} do not follow from the runs; to mend: orchestrator db check --mend")
    mended = f", {counted(len(differing), 'group')} mended" if mend else ""
    notify(f"the registry is at revision {revision}; its statistics follow from the runs{mended}")


_COLUMNS = ["what", "id", "name", "change", "remark"]


@db.command(
    example="orchestrator db backup registry-monday.sqlite",
)
@click.argument("path", metavar="FILE")
@click.option("--overwrite", is_flag=True, help="Overwrite FILE.")
def backup(path: str, overwrite: bool) -> None:
    """Back up the registry to FILE while runs go on writing.

    A SQLite registry is copied to a SQLite file: read it with --registry FILE, or copy it back. PostgreSQL is dumped
    with pg_dump, for pg_restore. Files of runs and models are not included.
    """
    say_now("copying the registry")
    from orchestrator.progress import size_text
    from orchestrator.registry.backups import back_up_registry

    target = Path(path).expanduser()
    form = back_up_registry(current_settings().registry, target, overwrite=overwrite)
    ways = {"sqlite": f"read it with --registry {path}", "pg_dump": f"restore it with: pg_restore --dbname=URL {path}"}
    notify(f"wrote {path}, {size_text(target.stat().st_size)}; {ways[form]}")


@db.command(
    example="orchestrator db merge ~/laptop/registry.sqlite --dry-run",
)
@click.argument("other", metavar="FILE|URL")
@click.option("--unfinished", is_flag=True, help="Include unfinished runs.")
@click.option("--dry-run", is_flag=True, help="Show what would be merged.")
@format_options
def merge(other: str, unfinished: bool, dry_run: bool, form: str | None) -> int:
    """Merge another registry into this one.

    FILE is a SQLite file, URL a PostgreSQL registry; it is only read. Runs come with trials, models, tags and notes.
    Nothing here is replaced: a different run with the same id is a conflict, which is printed, and the exit status is
    1. Runs that were removed here stay removed. Merging again changes nothing.
    Files of runs and models are not copied.
    """
    say_now(f"reading {_without_password(other)}")
    from orchestrator.registry.database import Database
    from orchestrator.registry.merging import merge_registry, open_other

    merged = []
    with (
        closing(Database(current_settings().registry, read_only=dry_run)) as target,
        closing(open_other(target, other)) as source,
        status_line() as show,
    ):
        for one in merge_registry(target, source, unfinished=unfinished, dry_run=dry_run):
            merged.append(one)
            show(f"{'comparing' if dry_run else 'merging'}: {counted(len(merged), 'item')}, {one.name[:40]}")
    told = [one for one in merged if one.change != "unchanged"]
    show_rows(
        [asdict(one) for one in told],
        _COLUMNS,
        form,
        None,
        empty="nothing to merge: both are the same",
        spare=["name"],
    )
    notify(_summary(merged, dry_run=dry_run))
    return int(any(one.change == "conflict" for one in merged))


def _summary(merged: "Iterable[Merged]", *, dry_run: bool) -> str:
    counts = Counter(one.change for one in merged)
    words = {"new": "new", "joined": "with new notes or tags", "unchanged": "the same"}
    parts = [f"{counts[change]:,} {word}" for change, word in words.items() if counts[change]]
    if counts["unfinished"]:
        parts.append(f"{counts['unfinished']:,} not ended there, and left out (--unfinished brings them)")
    if counts["removed"]:
        parts.append(f"{counts['removed']:,} in the trash here, and left there")
    if counts["conflict"]:
        parts.append(f"{counts['conflict']:,} in conflict, left as they are here")
    return ("would be: " if dry_run else "") + (", ".join(parts) or "nothing there")


def _without_password(location: str) -> str:
    from orchestrator.settings import without_password

    return without_password(location)


_GARBAGE_COLUMNS = ["what", "num_bytes", "path", "why"]


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator gc --dry-run\norchestrator gc --older-than 90d --yes",
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted.")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@click.option(
    "--older-than", default="30d", show_default=True, metavar="AGE", help="Delete shared data unused for AGE."
)
@format_options
def gc(dry_run: bool, yes: bool, older_than: str, form: str | None) -> None:
    """Delete unused files: removed runs, old checkpoints, caches.

    It also deletes weights of trials that are neither registered, nor the best of their group, nor the base model of
    another run, and shared data and downloads unused for --older-than. Running and pinned runs keep everything.
    """
    older_than_s = age_s(older_than, "--older-than")
    say_now("looking for what nothing needs")
    from orchestrator.cli.registry_reading import open_registry
    from orchestrator.execution.garbage import delete_garbage, find_garbage
    from orchestrator.progress import size_text

    settings = current_settings()
    open_registry().close()  # one that is not there would read as "no run needs anything"
    items = find_garbage(settings, older_than_s)
    show_rows([asdict(item) for item in items], _GARBAGE_COLUMNS, form, None, empty="nothing to delete")
    total = f"{counted(len(items), 'item')}, {size_text(sum(item.num_bytes for item in items))}"
    if not items or not is_confirmed("delete", total, dry_run=dry_run, yes=yes):
        return
    gone = list(delete_garbage(items, settings, older_than_s))
    notify(f"deleted {counted(len(gone), 'item')}, {size_text(sum(item.num_bytes for item in gone))}")
