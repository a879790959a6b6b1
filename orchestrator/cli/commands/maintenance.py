"""Commands `schema` (fields of specs) and `db` (tables of the registry)."""

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from orchestrator.cli.commands.registry_keeping import backup, merge
from orchestrator.cli.frame import GlobalOptionsCommand, GlobalOptionsGroup, current_settings
from orchestrator.cli.messages import notify
from orchestrator.cli.output import show_record, show_rows, show_text
from orchestrator.cli.reading import output_options, reading_options
from orchestrator.errors import InputError
from orchestrator.progress import counted

if TYPE_CHECKING:
    from orchestrator.specs.documentation import FieldDoc


@click.command(cls=GlobalOptionsCommand, example="orchestrator schema sweep")
@click.argument("kind", required=False)
@reading_options
def schema(kind: str | None, form: str | None, output: str | None) -> None:
    """Show all fields of KIND; without KIND, list the kinds.

    A field is `identity` when it changes the result, `execution` when it does not. With `-f json`: a JSON Schema.
    """
    import json

    from orchestrator.nearest import did_you_mean
    from orchestrator.specs.documentation import document_fields
    from orchestrator.specs.kinds import SPEC_KINDS, spec_class

    if kind is None:
        kinds = [{"kind": name, "about": spec_class(name).title} for name in SPEC_KINDS]
        show_rows(kinds, ["kind", "about"], form, output)
        return
    if kind not in SPEC_KINDS:
        raise InputError(f"{kind!r} is no kind of spec{did_you_mean(kind, SPEC_KINDS)}")
    rows = list(document_fields(spec_class(kind)))
    if form == "json" or (form is None and (output or "").endswith(".json")):
        show_text(json.dumps(spec_class(kind).model_json_schema(), indent=2, ensure_ascii=False), output)
    elif form == "csv" or (form is None and (output or "").endswith(".csv")):
        show_rows(map(asdict, rows), ["field", "type", "unit", "default", "role", "about"], "csv", output)
    else:
        show_text("\n".join(_described(row) for row in rows), output)


def _described(row: "FieldDoc") -> str:
    """Two paragraphs on a field: its type and default, and below them what it means."""
    unit = f" ({row.unit})" if row.unit else ""
    default = row.default if row.default in ("required", "left out", "see below") else f"default {row.default}"
    about = textwrap.fill(row.about, 80, initial_indent="    ", subsequent_indent="    ")
    field = f"{row.field}: {row.type}{unit}; {default}; {row.role}"
    return f"{textwrap.fill(field, 80, subsequent_indent=' ' * 8)}\n{about}"


@click.group(cls=GlobalOptionsGroup)
def db() -> None:
    """Tables of the registry."""


@db.command(example="orchestrator db upgrade")
@click.option("--no-backup", is_flag=True, help="Make no copy of the registry first.")
def upgrade(no_backup: bool) -> None:
    """Bring the tables to the newest revision.

    Runs are kept. The registry is copied before it is changed, and where to is said: a SQLite file beside itself, a
    PostgreSQL registry by `pg_dump` into the folder `backups` of the home.
    """
    from orchestrator.cli.commands.registry_reading import open_registry
    from orchestrator.registry import Registry

    open_registry().close()  # a mistyped path is told, not made
    settings = current_settings()
    with Registry(settings.registry) as registry:
        show_text(registry.upgrade(settings.home / "backups", with_backup=not no_backup))


for _command in (backup, merge):
    db.add_command(_command)


@db.command(example="orchestrator db check")
@click.option("--mend", is_flag=True, help="Make the numbers of all groups anew.")
def check(mend: bool) -> None:
    """Check that the leaderboard's numbers follow from the runs.

    They are kept as runs end, so that a board need not read all runs, and are made again here and compared.
    """
    from orchestrator.cli.commands.registry_reading import open_registry
    from orchestrator.errors import RegistryError
    from orchestrator.registry import Registry

    open_registry().close()  # a mistyped path is told, not made
    with Registry(current_settings().registry, read_only=not mend) as registry:
        differing = registry.check_groups(mend=mend)
    if differing and not mend:
        which = f"{counted(len(differing), 'group')}, as {differing[0]},"
        raise RegistryError(f"numbers of {which} do not follow from the runs; to mend: orchestrator db check --mend")
    notify(f"{counted(len(differing), 'group')} mended" if mend else "the numbers of all groups follow from the runs")


@db.command(example="orchestrator db current")
@output_options
def current(form: str | None, output: str | None) -> None:
    """Show the revision of the tables."""
    from orchestrator.cli.commands.registry_reading import open_registry

    with open_registry() as registry:
        show_record({"revision": registry.current_revision() or "empty"}, form, output)
