"""Commands of `db` that keep a registry: `backup`, `merge`."""

from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.frame import GlobalOptionsCommand, current_settings
from orchestrator.cli.messages import notify, say_now, status_line
from orchestrator.cli.output import show_rows
from orchestrator.cli.reading import reading_options
from orchestrator.progress import counted

if TYPE_CHECKING:
    from orchestrator.registry.merging import Merged

_COLUMNS = ["what", "id", "name", "change", "remark"]


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator db backup registry-monday.sqlite",
)
@click.argument("path", metavar="FILE")
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
def backup(path: str, overwrite: bool) -> None:
    """Copy the registry to FILE while runs go on writing.

    A SQLite registry becomes a SQLite file, which is read with --registry FILE, or copied back. A PostgreSQL one
    becomes an archive of pg_dump, for pg_restore. Files of runs and models are not in it.
    """
    say_now("copying the registry")
    from orchestrator.progress import size_text
    from orchestrator.registry.backups import back_up_registry

    target = Path(path).expanduser()
    form = back_up_registry(current_settings().registry, target, overwrite=overwrite)
    ways = {"sqlite": f"read it with --registry {path}", "pg_dump": f"restore it with: pg_restore --dbname=URL {path}"}
    notify(f"wrote {path}, {size_text(target.stat().st_size)}; {ways[form]}")


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator db merge ~/laptop/registry.sqlite --dry-run",
)
@click.argument("other", metavar="FILE|URL")
@click.option("--unfinished", is_flag=True, help="Bring runs too that have not ended there.")
@click.option("--dry-run", is_flag=True, help="Only show what would come, and what would not.")
@reading_options
def merge(other: str, unfinished: bool, dry_run: bool, form: str | None, output: str | None) -> int:
    """Bring what another registry has into this one.

    The other one is a SQLite file or a PostgreSQL URL; it is only read. Runs with their trials, models and what people
    noted come along; one that is in the trash here stays there, and is named. Nothing here is replaced: where both have
    another run of the same id it is named, and the exit status is 1. Merging again changes nothing.
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
    show_rows([asdict(one) for one in told], _COLUMNS, form, output, empty="both have the same", spare=["name"])
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
