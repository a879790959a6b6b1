"""Fields that the overrides of a command may set, for its completion: those of the spec that was named before them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from orchestrator.cli.frame import settings_of


@dataclass(frozen=True)
class OverrideField:
    """One field by the dotted key that an override gives."""

    key: str
    about: str
    values: tuple[str, ...] = ()
    """The values that it takes, where they are few."""


def override_fields(context: click.Context) -> list[OverrideField]:
    """Fields for a command's `KEY=VALUE`: of its spec, of the task it scores, or of the run that goes on."""
    given = context.params
    if given.get("task") is not None:
        return list(_fields_of({"kind": "evaluate"}, only="task."))
    run_id = given.get("resumed") or given.get("run_id")
    if run_id:
        from orchestrator.registry.queries.recorded_names import RecordedNames

        kind = RecordedNames(settings_of(context).registry).kind_of_run(run_id)
        return [field for field in _fields_of({"kind": kind}) if field.key.startswith("execution.")]
    if given.get("spec_path"):
        from orchestrator.specs.loading import read_values

        return list(_fields_of(read_values(given["spec_path"])))
    return []


def _fields_of(values: Any, prefix: str = "", only: str = "") -> Iterator[OverrideField]:
    """The fields of a spec and of its stages; where `only` a section is asked for, its fields without its name."""
    from orchestrator.specs.documentation import document_fields
    from orchestrator.specs.kinds import SPEC_KINDS, spec_class

    kind = values.get("kind")
    for field in document_fields(spec_class(kind)) if kind in SPEC_KINDS else ():
        is_value = field.default != "see below" and field.type != "section" and "[]" not in field.field
        if is_value and field.field != "kind" and field.field.startswith(only):
            yield OverrideField(prefix + field.field.removeprefix(only), field.about, _few_values(field.type))
    for name, stage in (values.get("stages") or {}).items():
        yield from _fields_of(stage, f"{prefix}stages.{name}.")


def _few_values(described: str) -> tuple[str, ...]:
    """Values of a type that `documentation` describes as a choice, or as true or false."""
    if described == "true or false":
        return ("true", "false")
    return tuple(described.split(" | ")) if " | " in described and "→" not in described else ()
