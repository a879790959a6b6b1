"""Base classes of specs: frozen, strict about keys, each field either *identity* or *execution*.

Identity fields change the result and make up the fingerprint; execution fields (workers, resources, intervals of
checkpoints and logging) only change how it is reached.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

from orchestrator.base.run_states import check_name

_MAX_VALUE_CHARS = 60


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


class Section(BaseModel):
    """A part of a spec: frozen, no unknown keys, every default checked."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, defer_build=True)

    def changed(self, names: Iterable[str]) -> Iterator[str]:
        """Yield those of some fields that have another value than their default."""
        return (name for name in names if getattr(self, name) != type(self).model_fields[name].default)

    def identity_values(self) -> dict[str, Any]:
        """The values that make up the fingerprint, as plain JSON types."""
        values = {}
        for name, info in type(self).model_fields.items():
            value, extra = getattr(self, name), info.json_schema_extra
            is_unset_new = isinstance(extra, dict) and extra.get("is_new") and value == info.default
            if role_of(info) == "identity" and not is_unset_new:
                values[name] = _plain(value)
        return values


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
    def _check_name(cls, name: str) -> str:
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


def hour_limit_of(spec: Spec) -> tuple[str, float] | None:
    """Path and value of the field that limits the hours of a run; None where it has no limit."""
    for path, part in (("execution", spec), ("pretraining.execution", getattr(spec, "pretraining", None))):
        hours = getattr(getattr(part, "execution", None), "max_hours", None)
        if hours is not None:
            return f"{path}.max_hours", hours
    return None


def differences(was: Any, now: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of each field that differs, and both of its values as `was → now`.

    >>> dict(differences({"steps": 10, "model": {"size": "tiny"}}, {"steps": 10, "model": {"size": "base"}}))
    {('model', 'size'): 'tiny → base'}
    """
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in (*was, *(key for key in now if key not in was)):
            yield from differences(was.get(key), now.get(key), (*path, str(key)))
    elif _as_json(was) != _as_json(now):
        yield path, f"{_shown(was)} → {_shown(now)}"


def _as_json(value: Any) -> Any:
    """The value as it comes back from JSON: tuples are lists."""
    return json.loads(json.dumps(value, default=str))


def _shown(value: Any) -> str:
    """Text of a value, short; of a digest its beginning."""
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    if len(text) == 64 and all(character in "0123456789abcdef" for character in text):
        return f"{text[:12]}…"
    return shortened(text)


def shortened(text: str) -> str:
    """The beginning of a long text, as messages show it."""
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[: _MAX_VALUE_CHARS - 1]}…"
