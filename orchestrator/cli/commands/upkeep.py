"""`schema`, `db`, `doctor`: what can be written, the record's tables, and whether this machine is fit."""

from dataclasses import asdict

import click

from orchestrator.cli.frame import LabCommand, LabGroup, current_settings, reading_options
from orchestrator.cli.output import show_rows, show_text
from orchestrator.errors import InputError


@click.command(cls=LabCommand, example="orchestrator schema sweep")
@click.argument("kind", required=False)
@reading_options
def schema(kind: str | None, form: str | None, output: str | None) -> None:
    """Every field of a kind of spec.

    Without KIND: the kinds. A field is `identity` when it changes the result, `execution` when it does not. As JSON it
    is a JSON Schema.
    """
    import json

    from orchestrator.specs.documentation import document_fields
    from orchestrator.specs.loading import SPEC_KINDS
    from orchestrator.specs.problems import nearest

    if kind is None:
        kinds = [{"kind": name, "about": cls.title} for name, cls in SPEC_KINDS.items()]
        show_rows(kinds, ["kind", "about"], form, output)
        return
    if kind not in SPEC_KINDS:
        raise InputError(f"{kind!r} is no kind of spec{nearest(kind, SPEC_KINDS)}")
    if form == "json" or (form is None and (output or "").endswith(".json")):
        show_text(json.dumps(SPEC_KINDS[kind].model_json_schema(), indent=2, ensure_ascii=False), output)
    else:
        rows = [asdict(row) for row in document_fields(SPEC_KINDS[kind])]
        show_rows(rows, ["field", "type", "unit", "default", "role", "about"], form, output)


@click.group(cls=LabGroup)
def db() -> None:
    """The registry's tables."""


@db.command(example="orchestrator db upgrade")
def upgrade() -> None:
    """Bring the registry's tables to the newest revision, keeping what they hold."""
    from orchestrator.registry import Registry

    with Registry(current_settings().registry) as registry:
        show_text(registry.upgrade())


@db.command(example="orchestrator db current")
def current() -> None:
    """The revision that the registry's tables are at."""
    from orchestrator.registry import Registry

    with Registry(current_settings().registry) as registry:
        show_text(registry.current_revision() or "empty")


@click.command(cls=LabCommand, example="orchestrator doctor")
@reading_options
def doctor(form: str | None, output: str | None) -> int:
    """Whether this machine, storage and registry are fit.

    Each problem comes with its remedy; exit status 1 when there is one.
    """
    from orchestrator.doctor import examine

    findings = list(examine(current_settings()))
    show_rows([asdict(finding) for finding in findings], ["part", "state", "found", "remedy"], form, output)
    return 1 if any(finding.state == "problem" for finding in findings) else 0
