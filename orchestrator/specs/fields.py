"""Base classes of specs: frozen, strict about keys, each field either *identity* or *execution*.

Identity fields change the result and make up the fingerprint; execution fields (workers, resources, intervals of
checkpoints and logging) only change how it is reached.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

from orchestrator.run_ids import check_name


def identity(
    default: Any = ..., doc: str = "", *, unit: str | None = None, is_new: bool = False, **constraints: Any
) -> Any:
    """A field that changes the result; `doc` is its one sentence, `unit` its unit where it has one.

    A field that `is_new` is no part of the fingerprint at its default, so that older specs keep theirs.
    """
    extra: JsonDict = {"role": "identity", "unit": unit, "is_new": is_new}
    return Field(default, description=doc, json_schema_extra=extra, **constraints)


def execution(default: Any = ..., doc: str = "", *, unit: str | None = None, **constraints: Any) -> Any:
    """A field that only changes how the result is reached."""
    return Field(default, description=doc, json_schema_extra={"role": "execution", "unit": unit}, **constraints)


def role_of(info: FieldInfo) -> str:
    """Role of a field: `identity` or `execution`."""
    extra = info.json_schema_extra
    assert isinstance(extra, dict), "every spec field is made by identity() or execution()"
    return str(extra["role"])


def _is_new(info: FieldInfo) -> bool:
    return isinstance(info.json_schema_extra, dict) and bool(info.json_schema_extra.get("is_new"))


class Section(BaseModel):
    """A part of a spec: frozen, no unknown keys, every default checked."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, defer_build=True)

    def identity_values(self) -> dict[str, Any]:
        """The values that make up the fingerprint, as plain JSON types."""
        values = {
            name: getattr(self, name)
            for name, info in type(self).model_fields.items()
            if role_of(info) == "identity" and not (_is_new(info) and getattr(self, name) == info.default)
        }
        return {name: _plain(value) for name, value in values.items()}


class ExecutionSection(Section):
    """Fields that every `execution` has."""

    max_hours: float | None = execution(
        None,
        "Hours of work, over all attempts, after which the run stops with a checkpoint; `resume` with more goes on.",
        unit="hours",
        gt=0.0,
    )


class Spec(Section):
    """Request of a person for a run: one YAML file, one `kind`."""

    kind: str
    title: ClassVar[str] = ""
    """Summary of the kind in one line, for `orchestrator schema`."""

    name: str = execution("", "The experiment's name; the file's name without its ending when left out.")
    tags: tuple[str, ...] = execution((), "Words to find the run by.")

    @field_validator("name")
    @classmethod
    def _has_a_name_that_finds_it(cls, name: str) -> str:
        return check_name(name) if name else name

    def fingerprint(self) -> str:
        """SHA-256 of everything that shapes the result, as 64 hexadecimal digits."""
        values = {"kind": self.kind, **self.identity_values()}
        return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def stage_specs(self) -> Mapping[str, "Spec"]:
        """Specs of the runs that it asks for, by name: the stages of a pipeline, else itself."""
        return {self.name or self.kind: self}

    def named(self, name: str) -> Self:
        """The same spec under a name, unless it has one."""
        return self if self.name else self.model_copy(update={"name": name})


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return value.identity_values()
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
