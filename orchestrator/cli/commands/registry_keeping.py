"""Commands of `db` that keep a registry: `backup`, `export`, `import`, `merge`."""

from collections import Counter
from collections.abc import Callable, Iterable
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
    from orchestrator.registry.keeping.merging import Merged

_COLUMNS = ["what", "id", "name", "change", "remark"]
_overwrite_option = click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
_dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would come, and what would not.")
_EXPORT_NAME = "registry.jsonl.zst"
"""Name of an export in a folder."""


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator db backup registry-monday.sqlite",
)
@click.argument("path", metavar="FILE")
@_overwrite_option
def backup(path: str, overwrite: bool) -> None:
    """Copy the registry to FILE while runs go on writing.

    A SQLite registry becomes a SQLite file, which is read with --registry FILE, or copied back. A PostgreSQL one
    becomes an archive of pg_dump, for pg_restore; without that program, or where FILE ends in .jsonl, .jsonl.gz or
    .jsonl.zst, the portable form, for `db import`. Files of runs and models are not in it.
    """
    say_now("copying the registry")
    from orchestrator.progress import size_text
    from orchestrator.registry.keeping.backups import back_up_registry

    with status_line() as show:
        made = back_up_registry(
            current_settings().registry, Path(path).expanduser(), overwrite=overwrite, on_rows=_told(show, "copying")
        )
    ways = {
        "sqlite": f"read it with --registry {path}",
        "pg_dump": f"restore it with: pg_restore --dbname=URL {path}",
        "portable": f"restore it with: orchestrator --registry NEW db import {path}",
    }
    notify(f"wrote {path}, {size_text(made.num_bytes)}; {ways[made.form]}")


@click.command(
    "export",
    cls=GlobalOptionsCommand,
    example="orchestrator db export registry.jsonl.zst",
)
@click.argument("path", metavar="FILE")
@_overwrite_option
def export_all(path: str, overwrite: bool) -> None:
    """Write the whole registry in portable form, as JSON lines.

    SQLite and PostgreSQL give the same bytes for the same content. The ending of FILE compresses it: .jsonl, .jsonl.gz
    or .jsonl.zst. In a folder the file is called registry.jsonl.zst.
    """
    say_now("writing the registry")
    from orchestrator.progress import size_text
    from orchestrator.registry.keeping.backups import export_registry

    target = Path(path).expanduser()
    target = target / _EXPORT_NAME if target.is_dir() else target
    with status_line() as show:
        made, num_rows = export_registry(
            current_settings().registry, target, overwrite=overwrite, on_rows=_told(show, "writing")
        )
    notify(f"wrote {made.path}: {counted(num_rows, 'row')}, {size_text(made.num_bytes)}")


@click.command(
    "import",
    cls=GlobalOptionsCommand,
    example="orchestrator db import registry.jsonl.zst --registry new.sqlite",
)
@click.argument("path", metavar="FILE")
@_dry_run_option
@reading_options
def import_all(path: str, dry_run: bool, form: str | None, output: str | None) -> int:
    """Bring an export into the registry; a new one is made.

    Into a registry that has runs already it is merged, runs that have not ended included; see `db merge`.
    """
    from orchestrator.errors import InputError
    from orchestrator.registry.keeping.portable_form import is_portable

    if not is_portable(Path(path).expanduser()):
        what = "is no registry in portable form" if Path(path).expanduser().exists() else "is not there"
        raise InputError(f"{path} {what}; `orchestrator db export` writes one, and databases are joined by `db merge`")
    return _join(path, unfinished=True, dry_run=dry_run, form=form, output=output)


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator db merge ~/laptop/registry.sqlite --dry-run",
)
@click.argument("other", metavar="FILE|URL")
@click.option("--unfinished", is_flag=True, help="Bring runs too that have not ended there.")
@_dry_run_option
@reading_options
def merge(other: str, unfinished: bool, dry_run: bool, form: str | None, output: str | None) -> int:
    """Bring what another registry has into this one.

    The other one is a SQLite file, a PostgreSQL URL or an export; it is only read. Runs with their trials, models and
    what people noted come along; one that is in the trash here stays there, and is named. Nothing here is replaced:
    where both have another run of the same id it is named, and the exit status is 1. Merging again changes nothing.
    """
    return _join(other, unfinished=unfinished, dry_run=dry_run, form=form, output=output)


def _join(other: str, *, unfinished: bool, dry_run: bool, form: str | None, output: str | None) -> int:
    """Bring another registry here; returns 1 where something could not come."""
    say_now(f"reading {_without_password(other)}")
    from orchestrator.registry.database import Database
    from orchestrator.registry.keeping.merging import fill_if_empty, merge_registry
    from orchestrator.registry.keeping.other_registry import open_other, refuse_same

    target = Database(current_settings().registry, read_only=dry_run)
    try:
        refuse_same(target, other)
        with status_line() as show, open_other(other, _told(show, "reading")) as source:
            if unfinished and not dry_run:
                num_rows = fill_if_empty(target, source)
                if num_rows is not None:
                    notify(f"{target} was empty, and has everything now: {counted(num_rows, 'row')}")
                    return 0
            merged = []
            for one in merge_registry(target, source, unfinished=unfinished, dry_run=dry_run):
                merged.append(one)
                show(f"{'comparing' if dry_run else 'merging'}: {counted(len(merged), 'item')}, {one.name[:40]}")
    finally:
        target.close()
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


def _told(show: Callable[[str], None], verb: str) -> Callable[[str, int], None]:
    """Make the function that is called with a table and the number of rows so far: it shows them."""
    return lambda table, num_rows: show(f"{verb} {table}: {num_rows:,} rows")


def _without_password(location: str) -> str:
    from orchestrator.settings import without_password

    return without_password(location)
