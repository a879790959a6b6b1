"""Reproduction of a run: the commands that make it again, and what cannot be the same any more, and why.

    record ─► spec, code, versions, origin ─► commands
    record ─► data, models, code as they are now ─► obstacles

A trial is made again as a sweep of one trial. A pipeline has no result of its own: its stages are made again.
"""

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from orchestrator.errors import InputError, NotFoundError, SpecError
from orchestrator.execution.code_again import (
    code_command,
    code_obstacles,
    has_code_of_now,
    removal_command,
    version_commands,
)
from orchestrator.execution.inputs_now import changed_inputs
from orchestrator.execution.origin import origin_folder, with_absolute_paths
from orchestrator.provenance.machine import read_machine
from orchestrator.registry import Registry
from orchestrator.registry.place_tags import is_of_one_run
from orchestrator.registry.records import AttemptRecord, RunRecord
from orchestrator.registry.run_differences import make_of
from orchestrator.settings import Settings
from orchestrator.specs import Spec, SweepSpec
from orchestrator.specs.loading import parse_spec, spec_values

_RECIPE = "recipe."
_OF_OTHER_CODE = (
    "its code may refuse a registry that newer code has changed; then add --registry FILE to its run, and bring the "
    "run here with: orchestrator db merge FILE",
    "on a cluster (--address) workers run the code that is installed there",
)
_MACHINE = {"processor": "processor", "gpus": "GPUs", "platform": "platform"}
"""Facts of a machine on which the last bits of a result may depend, by what a person calls them."""


@dataclass(frozen=True)
class Reproduction:
    """Way to make a run again."""

    run: RunRecord
    values: Mapping[str, Any] | None
    """Spec of the new run as a YAML file has it, maybe one that its own code alone reads; None for a pipeline."""
    commands: list[str]
    obstacles: list[str] = field(default_factory=list)
    """Reasons why something will not be the same."""
    notes: list[str] = field(default_factory=list)
    """Reasons why the last bits may not be the same."""
    paths_begin_at: Path | None = None
    """Folder that relative paths of the spec are meant from, where it is to be run in another one; else None."""


def plan_reproduction(run_id: str, settings: Settings, program: str = "orchestrator") -> Reproduction:
    """Tell how a run is made again. Nothing is started, and nothing written.

    Args:
        program: how this program is called, with its global options; they mean the same in every folder.

    Raises: NotFoundError; InputError for a trial that cannot be made again alone; SpecError for a spec that is not read
        any more, where the run's own code is not recorded.
    """
    with Registry(settings.registry, read_only=True) as registry:
        run = registry.run(run_id)
        if run.kind == "pipeline":
            return Reproduction(run, None, list(_stage_commands(registry, run, program)))
        make = make_of(registry, run)
        spec, values, unread = _spec_and_values(registry, run)
        maker = run if run.parent_id is None else registry.run(run.parent_id)
        folder = origin_folder(maker.storage_path)
        obstacles = code_obstacles(make)
        if not folder.is_dir():
            obstacles.append(f"the folder that it was started in, {folder}, is gone; relative paths begin elsewhere")
        if spec is not None:
            with chdir(folder if folder.is_dir() else Path.cwd()):
                obstacles += changed_inputs(registry, maker, spec, settings)
        notes = [*_attempt_notes(registry.attempts(maker.id), make), *_machine_notes(make)]
    place = shlex.quote(str(Path.cwd() / f"{run.id}.yaml"))
    diff_place, code_place = (shlex.quote(str(Path.cwd() / f"{run.id}{end}")) for end in (".diff", "-code"))
    commands = [f"{program} runs reproduce {run.id} --show spec > {place}"]
    code = code_command(make, code_place, diff_place)
    if unread is not None:
        if code is None:
            raise unread
        why = str(unread).partition("; known")[0]  # which names all fields that there are now
        obstacles.append(f"its data were not looked at: only its own code reads its spec; for that of now, {why}")
    if code is None:
        commands += version_commands(make)
        if folder != Path.cwd() and folder.is_dir():
            commands.append(f"cd {shlex.quote(str(folder))}")
        commands += [f"new=$({program} run {place})", f'{program} runs diff {run.id} "$new"']
        return Reproduction(run, values, commands, obstacles, notes)
    if diff_place in code:
        commands.append(f"{program} runs reproduce {run.id} --show diff > {diff_place}")
    # In the folder of the code: Ray's processes take the code of the folder that their driver works in.
    then = f"cd {code_place} && {shlex.quote(sys.executable)} -m {program} run {place}"
    commands += [code, *version_commands(make), f"new=$({then})", f'{program} runs diff {run.id} "$new"']
    commands.append(removal_command(code_place))
    return Reproduction(run, values, commands, obstacles, [*notes, *_OF_OTHER_CODE], paths_begin_at=folder)


def _stage_commands(registry: Registry, run: RunRecord, program: str) -> Iterator[str]:
    """Yield a command for each stage of a pipeline: it makes the stage again, or tells how where other code ran."""
    for stage in reversed(registry.stages(run.id)):
        runs_now = " --run" if has_code_of_now(make_of(registry, stage)) else ""
        yield f"{program} runs reproduce {stage.id}{runs_now}  # {stage.name}"


def _spec_and_values(registry: Registry, run: RunRecord) -> tuple[Spec | None, Mapping[str, Any], SpecError | None]:
    """Spec that makes a run again, its values, and the error where the code of now does not read the spec any more."""
    try:
        spec = reproduction_spec(registry, run)
    except SpecError as error:
        if run.parent_id is not None:  # its sweep's spec has to be read, to leave the search out of it
            raise
        return None, dict(run.spec) | {"tags": _lasting_tags(run.spec)}, error
    return spec, spec_values(spec), None


def _lasting_tags(spec: Mapping[str, Any]) -> list[str]:
    return [tag for tag in spec.get("tags") or () if not is_of_one_run(tag)]


def reproduction_spec(registry: Registry, run: RunRecord) -> Spec:
    """Return the spec that makes a run again: the recorded one, of a trial that of a sweep with this trial alone.

    Raises: InputError for a trial whose sweep decides its result; SpecError for a spec that is not read any more.
    """
    if run.parent_id is None:
        return parse_spec(dict(run.spec) | {"tags": _lasting_tags(run.spec)})
    sweep = parse_spec(registry.run(run.parent_id).spec)
    again = f"make all of its sweep again: orchestrator runs reproduce {run.parent_id}"
    if not isinstance(sweep, SweepSpec):
        raise InputError(f"trial {run.id} belongs to a {sweep.kind}, which chooses what its trials start from; {again}")
    recipe: dict[str, Any] = {}
    for path, value in registry.parameters(run.id).items():
        if path.startswith(_RECIPE):
            _put(recipe, path.removeprefix(_RECIPE).split("."), value)
    values = {name: value for name, value in spec_values(sweep).items() if name not in _OF_A_SEARCH}
    tags = [tag for tag in sweep.tags if not is_of_one_run(tag)]
    name = f"{sweep.name}-{run.number}"
    return parse_spec(values | {"name": name, "tags": tags, "recipe": recipe, "seeds": [recipe.get("seed", run.seed)]})


_OF_A_SEARCH = ("space", "search", "trials", "search_seed", "scheduler", "reduction_factor", "grace_evaluations")
"""Fields of a sweep that decide which trials there are, and which end early."""


def spec_text(reproduction: Reproduction) -> str:
    """Return the spec of a reproduction as YAML. Raises: InputError for a pipeline."""
    values: Any = reproduction.values
    if values is None:
        raise InputError(f"run {reproduction.run.id} is a pipeline; its stages are made again, one by one")
    folder = reproduction.paths_begin_at
    if folder is not None and folder.is_dir():
        with chdir(folder):
            values = with_absolute_paths(values, even_missing=True)
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    return f"# {reproduction.run.kind} {reproduction.run.name}, as run {reproduction.run.id} recorded it\n{text}"


def kept_diff(run_id: str, settings: Settings) -> str:
    """Return the uncommitted changes of a run's code. Raises: NotFoundError where none are kept."""
    with Registry(settings.registry, read_only=True) as registry:
        run = registry.run(run_id)
        make = make_of(registry, run)
        diff = None if make is None else registry.code_diff(make.run_id, make.number)
    if diff is None:
        raise NotFoundError(f"no uncommitted changes of code are kept of run {run.id}")
    return diff


def _put(values: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        values = values.setdefault(part, {})
    values[path[-1]] = value


def _attempt_notes(attempts: Sequence[AttemptRecord], make: AttemptRecord | None) -> Iterator[str]:
    versions = {((one.code or {}).get("commit"), (one.code or {}).get("diff_digest")) for one in attempts}
    if make is not None and len(versions) > 1:
        yield f"its {len(attempts)} attempts ran different code; that of attempt {make.number} is taken"


def _machine_notes(make: AttemptRecord | None) -> Iterator[str]:
    """Yield the facts of the recorded machine in which this one differs."""
    recorded: Mapping[str, Any] = (make.environment if make else None) or {}
    now = read_machine()
    for name, called in _MACHINE.items():
        was, is_now = recorded.get(name), getattr(now, name)
        is_now = list(is_now) if isinstance(is_now, tuple) else is_now
        if recorded and was != is_now:
            yield f"another machine: {called} {_told(was)} then, {_told(is_now)} here; the last bits may differ"


def _told(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) and value else str(value or "none")
