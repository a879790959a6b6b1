"""Differences between two runs, whatever their kinds: settings, data, code, environment and scores, field by field.

A trial is compared by its whole recipe; its code and environment are those of the attempt of its sweep that made it.
Of any other run the newest attempt counts.
"""

import json
from dataclasses import dataclass
from typing import Any

from orchestrator.cells import MISSING, cell, setting_cell
from orchestrator.measurements import is_of_the_machine
from orchestrator.registry.model_origins import SplitData
from orchestrator.registry.parameters import is_source_digest
from orchestrator.registry.records import AttemptRecord, RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.reports.run_facts import RunFacts, stage_name
from orchestrator.results import Split

TITLES = {
    "run": "Runs",
    "spec": "Spec",
    "data": "Data",
    "code": "Code",
    "environment": "Environment",
    "scores": "Scores",
    "speed": "Speed",
    "stages": "Stages, each of which can be compared",
}
"""Headings of the sections of a comparison, in the order of reading."""
_DATA_PARAMETERS = "data."
_DIGEST, _DIGEST_CHARS = ".digest", 12
_SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True)
class Difference:
    """One field in which two runs differ; None where a run has no such field."""

    section: str
    field: str
    first: Any
    second: Any


@dataclass(frozen=True)
class RunComparison:
    """Two runs and all in which they differ."""

    first: RunRecord
    second: RunRecord
    differences: list[Difference]
    same: list[str]
    """Sections that both have, without any difference."""
    unknown: dict[str, list[str]]
    """Sections that were not recorded of a run, with the ids of the runs."""
    refusals: dict[str, str]
    """Reasons why the score on the test split is refused, by the id of the run."""
    same_files: list[str]
    """Splits for which both read the same file, into different examples."""


def compare_runs(registry: Registry, first: str, second: str) -> RunComparison:
    """Compare two runs, given by the beginnings of their ids. Raises: NotFoundError."""
    runs = registry.run(first), registry.run(second)
    both = [run_sections(RunFacts(registry, run)) for run in runs]
    data = [sections["data"] or {} for sections in both]
    same_files = _take_same_files(*data)
    differences, same, unknown = list[Difference](), list[str](), dict[str, list[str]]()
    for section, one in both[0].items():
        other = both[1][section]
        if one is None or other is None:
            unknown[section] = [run.id for run, fields in zip(runs, (one, other), strict=True) if fields is None]
            continue
        values = {name: (one.get(name), other.get(name)) for name in [*one, *other]}
        found = [Difference(section, name, *pair) for name, pair in values.items() if not is_same(*pair)]
        differences += found
        same += [section] if one and not found else []
    refusals = registry.test_refusals([run.id for run in runs])
    return RunComparison(*runs, differences, same, unknown, refusals, same_files)


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same: 16 is 16.0, NaN is NaN, an empty list is no value, and 1 is not true."""
    if one in (None, []) and other in (None, []):
        return True
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other or (one != one and other != other))


def run_sections(facts: RunFacts) -> dict[str, dict[str, Any] | None]:
    """Fields of a run by section; None for a section that was not recorded of it."""
    run, values = facts.run, facts.values
    return {
        "run": {"kind": run.kind, "task": run.task, "state": str(run.state), "error": run.error},
        "spec": {path: value for path, value in facts.parameters.items() if not path.startswith(_DATA_PARAMETERS)},
        "data": _data(facts),
        "code": _code(facts.made_by),
        "environment": _environment(facts.made_by),
        "scores": {name: value for name, value in values.items() if not is_of_the_machine(name)},
        "speed": {"seconds": run.seconds, **{name: v for name, v in values.items() if is_of_the_machine(name)}},
        "stages": {stage_name(stage): stage.id for stage in facts.stages},
    }


def _data(facts: RunFacts) -> dict[str, Any]:
    """Digests and counts of a run's data, and the digests of the models and tokenizers that it began with."""
    found: dict[str, Any] = {}
    for row in facts.data:
        name = f"{row['kind']} {row['name']}"
        found[f"{name}{_DIGEST}"] = row["fingerprint"]
        found |= {f"{name}.{count}": number for count, number in row["counts"].items()}
        found |= {f"{name}.{file['path']}.num_bytes": file["num_bytes"] for file in row["files"]}
    return found | {path: value for path, value in facts.parameters.items() if path.startswith(_DATA_PARAMETERS)}


def shown_value(value: Any, section: str) -> str:
    """Text of a field's value; of a digest its beginning."""
    if value is None or value in ([], {}):
        return "not set"
    text = setting_cell(value) if section == "spec" else cell(value)
    is_digest = isinstance(value, str) and len(value) in (40, 64) and all(c in "0123456789abcdef" for c in value)
    return value[:_DIGEST_CHARS] if is_digest else json.dumps(value) if text == MISSING else text


def _take_same_files(*both: dict[str, Any]) -> list[str]:
    """Remove the digests of what data were taken from, since a remote file has none and would look different.

    The counts of data that one run alone has are removed, too: their digests say enough.

    Returns: splits whose file is the same in both runs while the examples are not, by a limit or by how it was read.
    """
    splits = {split: [SplitData.of(data, split) for data in both] for split in _SPLITS}
    one, other = ({name.removesuffix(_DIGEST) for name in data if name.endswith(_DIGEST)} for data in both)
    alone = tuple(f"{name}." for name in one ^ other)
    for data in both:
        for name in [*data]:
            if is_source_digest(name) or (name.startswith(alone) and not name.endswith(_DIGEST)):
                del data[name]
    pairs = [(split, one, other) for split, (one, other) in splits.items() if one.file is not None]
    return [split for split, one, other in pairs if one.file == other.file and one.taken != other.taken]


def _code(attempt: AttemptRecord | None) -> dict[str, Any] | None:
    """Code of an attempt; None where it was not recorded."""
    if attempt is None or attempt.code is None:
        return None
    code = attempt.code
    return {
        "package": code["version"],
        "commit": code["commit"],
        "no commit": code["reason"],
        "changes": code["diff_digest"],
        "changed files": list(code["changed_files"]) or None,
    }


def _environment(attempt: AttemptRecord | None) -> dict[str, Any] | None:
    """Command, versions and machine of an attempt; None where they were not recorded."""
    if attempt is None or not attempt.environment:
        return None
    values = dict(attempt.environment)
    versions = values.pop("versions", {})
    return {
        "command": attempt.command,
        "overrides": list(attempt.overrides or []) or None,
        **{name: list(value) if isinstance(value, tuple) else value for name, value in values.items()},
        **dict(versions),
        "worker hosts": sorted({host for group in attempt.workers or () for host in group["hosts"]}) or None,
    }
