"""Overrides for another attempt at a run: fields that change how its result is reached, and more points of a search.

Any field with the role *execution* may change between two attempts: numbers of workers and trials at a time, devices,
CPUs, intervals of logs and checkpoints. Keys are those of any override, so a stage's are `stages.NAME.execution.…`.
Beside them the `trials` of a sweep may grow: each search proposes the points that were there first, then the others.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.base.errors import SpecError
from orchestrator.specs.fields import Spec, differences
from orchestrator.specs.loading import Overrides, apply_override, parse_overrides, spec_values
from orchestrator.specs.pipeline import AnySpec
from orchestrator.specs.validation import validate_document
from orchestrator.specs.yaml_text import KeyPath, SourceLocation, YamlDocument


def override_execution(spec: AnySpec, overrides: Overrides) -> AnySpec:
    """The spec with some of its execution fields changed, or more points; without these its fingerprint stays.

    Raises: SpecError for an unknown field, a field that shapes the result, or a value that a field refuses.
    """
    document = YamlDocument(spec_values(spec), {})
    for key, value, place in parse_overrides(overrides):
        stage, rest = _split_stage(spec, key, place)
        apply_override(document, rest, value, place, stage)
    changed = validate_document(document)
    for path, change in differences(_fixed_values(spec), _fixed_values(changed)):
        if path != ("trials",):
            raise SpecError(
                f"{'.'.join(path)}: {change} cannot change between attempts; start a new run for another value. What "
                f"may change has the role `execution` in: orchestrator schema {spec.kind}"
            )
    adds_points(spec, changed)
    return changed


def adds_points(spec: Spec, changed: Spec) -> bool:
    """Whether a sweep has more points than before. Raises: SpecError for fewer, and where it has tried all points."""
    was, now = getattr(spec, "trials", None), getattr(changed, "trials", None)
    if was == now:
        return False
    if was is None:
        raise SpecError("trials: the grid has tried all its points; start a new run with more values in `space`")
    if now is None or now < was:
        raise SpecError(f"trials: the sweep has {was} points, which stay; give a larger number")
    return True


def execution_changes(was: Spec, now: Spec) -> Iterator[str]:
    """Yield a line for each execution field in which two specs differ, such as `num_cpus: 2 → 4`."""
    fixed = dict(differences(_fixed_values(was), _fixed_values(now)))
    for path, change in differences(spec_values(was), spec_values(now)):
        if path not in fixed:
            yield f"{'.'.join(path)}: {change}"


def _fixed_values(spec: Spec) -> dict[str, Any]:
    """Values that no attempt changes: what shapes the result, and how the run is found."""
    stages: Mapping[str, Spec] = getattr(spec, "stages", {})
    fixed = {**spec.identity_values(), "name": spec.name, "tags": spec.tags}
    return fixed | ({"stages": {name: _fixed_values(stage) for name, stage in stages.items()}} if stages else {})


def _split_stage(spec: Spec, key: str, place: SourceLocation) -> tuple[KeyPath, str]:
    """Path of the stage that a key begins with, whose name may have dots, and the rest of the key."""
    stages: Mapping[str, Spec] = getattr(spec, "stages", {})
    for name in stages:
        if key.startswith(f"stages.{name}."):
            return ("stages", name), key.removeprefix(f"stages.{name}.")
    if stages and key.startswith("stages."):
        raise SpecError(f"{place}: {key} names no stage; there are: {', '.join(stages)}")
    return (), key
