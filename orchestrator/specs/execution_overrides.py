"""Overrides for another attempt at a run: fields that change how its result is reached, and more points of a search.

Any field with the role *execution* may change between two attempts: numbers of workers and trials at a time, devices,
CPUs, intervals of logs and checkpoints. Keys are those of any override, so a stage's are `stages.NAME.execution.…`.
Beside them the `trials` of a sweep may grow: each search proposes the points that were there first, then the others.
"""

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.base.errors import SpecError
from orchestrator.specs.fields import Section, Spec, differences, role_of
from orchestrator.specs.loading import Overrides, apply_override, parse_overrides, spec_values
from orchestrator.specs.pipeline import AnySpec
from orchestrator.specs.validation import validate_document
from orchestrator.specs.yaml_text import KeyPath, SourceLocation, YamlDocument

_POINTS = "trials"
_OF_THE_RUN = ("name", "tags")
"""Execution fields that say how a run is found; no attempt changes them."""


def override_execution(spec: AnySpec, overrides: Overrides) -> AnySpec:
    """The spec with some of its execution fields changed, or more points; without these its fingerprint stays.

    Raises: SpecError for an unknown field, a field that shapes the result, or a value that a field refuses.
    """
    document = YamlDocument(spec_values(spec), {})
    for key, value, place in parse_overrides(overrides):
        section, below, rest = _section_of(spec, key)
        if key != _POINTS:
            _refuse_identity(section, key, rest, place)
        apply_override(document, rest, value, place, below)
    changed = validate_document(document)
    if not adds_points(spec, changed):
        assert changed.fingerprint() == spec.fingerprint(), "execution fields are no part of the fingerprint"
    return changed


def adds_points(spec: Spec, changed: Spec) -> bool:
    """Whether a sweep has more points than before. Raises: SpecError for fewer, and where it has tried all points."""
    was, now = getattr(spec, _POINTS, None), getattr(changed, _POINTS, None)
    if was == now:
        return False
    if was is None:
        raise SpecError("trials: the grid has tried all its points; start a new run with more values in `space`")
    if now is None or now < was:
        raise SpecError(f"trials: the sweep has {was} points, which stay; give a larger number")
    return True


def _section_of(spec: Spec, key: str) -> tuple[Section, KeyPath, str]:
    """The part of a spec that a key begins in, the path of this part, and the rest of the key.

    A stage's name may have dots: a variant's is `stage.variant`.
    """
    stages: Mapping[str, Spec] = getattr(spec, "stages", {})
    for name, stage in stages.items():
        if key.startswith(f"stages.{name}."):
            return stage, ("stages", name), key.removeprefix(f"stages.{name}.")
    return spec, (), key


def execution_changes(was: Spec, now: Spec) -> Iterator[str]:
    """Yield a line for each execution field in which two specs differ, such as `num_cpus: 2 → 4`."""
    for path, change in differences(spec_values(was), spec_values(now)):
        section, _, rest = _section_of(was, ".".join(path))
        parts = rest.split(".")
        if parts[0] not in _OF_THE_RUN and not _shapes_result(section, parts):
            yield f"{'.'.join(path)}: {change}"


def _refuse_identity(section: Section, key: str, rest: str, place: SourceLocation) -> None:
    """Raise SpecError for a field that shapes the result; unknown fields are left to the spec's own checks."""
    parts, kind = rest.split("."), getattr(section, "kind", "")
    remedy = f"what may change has the role `execution` in: orchestrator schema {kind}"
    stages: Mapping[str, Spec] = getattr(section, "stages", {})
    if stages and parts[0] == "stages" and parts[1:] and ".".join(parts[1:]) not in stages:
        raise SpecError(f"{place}: {key} names no stage; there are: {', '.join(stages)}")
    if parts[0] in _OF_THE_RUN:
        raise SpecError(f"{place}: {key} cannot change between attempts; {remedy}")
    if _shapes_result(section, parts):
        raise SpecError(
            f"{place}: {key} shapes the result, so a run goes on with the value that it began with; start a new run "
            f"for another one; {remedy}"
        )


def _shapes_result(section: Section, parts: Sequence[str]) -> bool:
    """Whether a path leads to an identity field, or below it."""
    for part in parts:
        info = type(section).model_fields.get(part)
        if info is None or role_of(info) == "execution":
            return False
        value = getattr(section, part)
        if not isinstance(value, Section):
            return True
        section = value
    return True
