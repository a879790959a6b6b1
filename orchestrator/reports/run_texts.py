"""Facts of a recorded run as short lines of text: for `runs show` and for a page."""

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from orchestrator.cells import cell, field_cell
from orchestrator.measurements import COLLAPSED

if TYPE_CHECKING:
    from orchestrator.registry.records import AttemptRecord, RunRecord

TEST = "test."
"""Beginning of the names of scores on the test split."""
_BASELINE = "baseline."
_NUM_SCORES_SHOWN = 12
_COUNTS_SHOWN = ("num_documents", "num_tokens", "num_bad_records")
"""Counts of a corpus that are shown; of other data all are."""
_MAX_FILES_NAMED = 3
_VERSIONS_SHOWN = ("python", "torch", "cuda", "ray")
_DIGEST_CHARS = 12


def score_lines(
    values: Mapping[str, float], metric: str | None, refusal: str | None = None, choice: str = ""
) -> dict[str, str]:
    """Each score with its baseline, the one that ranks first: `accuracy: 0.8400 (baseline 0.5000)`.

    Args:
        refusal: reason why scores on the test split are refused; None where they are not.
        choice: words on what the score that ranks was chosen from.
    """
    names = sorted((name for name in values if _BASELINE not in name), key=lambda name: (name != metric, name))
    lines = {}
    for name in names[:_NUM_SCORES_SHOWN]:
        baseline = values.get(_BASELINE + name)
        value = bool(values[name]) if name.rpartition(".")[2] == COLLAPSED else values[name]
        remarks = [] if baseline is None else [f"baseline {cell(baseline)}"]
        remarks += [choice] if choice and name == metric else []
        remarks += [f"refused: {refusal}"] if refusal and name.startswith(TEST) else []
        lines[name] = field_cell(name, value) + (f" ({'; '.join(remarks)})" if remarks else "")
    return lines


def changed_spec(run: "RunRecord") -> dict[str, Any]:
    """Spec of a run (recipe of a trial) without fields at their defaults; whole where it cannot be parsed."""
    if run.parent_id is not None:
        from orchestrator.specs.recipe import RecipeSpec

        defaults = RecipeSpec().model_dump(mode="json")
        return {name: value for name, value in run.spec.items() if name not in defaults or value != defaults[name]}
    from orchestrator.errors import SpecError
    from orchestrator.specs.loading import parse_spec

    try:
        changed = parse_spec(dict(run.spec)).model_dump(mode="json", exclude_defaults=True)
    except SpecError:  # of another version
        return dict(run.spec)
    return {"kind": run.kind, **changed}


def attempt_line(attempt: "AttemptRecord") -> str:
    """One line on an attempt: how it ended, where its driver ran, and its job on the cluster."""
    place = f"process {attempt.pid} on {attempt.host}" if attempt.host else "an unknown host"
    job = f", job {attempt.job_id}" if attempt.job_id else ""
    return f"{attempt.state}: {place}{job}; began {attempt.started_at:%Y-%m-%d %H:%M}{_workers_text(attempt)}"


def _workers_text(attempt: "AttemptRecord") -> str:
    """Training workers of an attempt by steps: `; steps 0-80: 4 workers on a, b; from step 80: 2 workers on a`."""
    from orchestrator.results import WorkersEvent

    groups = [WorkersEvent(**group) for group in attempt.workers or ()]
    ends = [f"steps {one.first_step:,}-{after.first_step:,}" for one, after in pairwise(groups)]
    ends += [f"from step {one.first_step:,}" for one in groups[-1:]]
    return "".join(f"; {steps}: {group}" for steps, group in zip(ends, groups, strict=True))


def data_line(row: Mapping[str, Any]) -> str:
    """One line on data of a run: its name, its counts without zeros, and its path."""
    counts = row["counts"]
    names = [name for name in _COUNTS_SHOWN if name in counts] or [name for name in counts if counts[name]]
    amounts = [f"{counts[name]:,} {name.removeprefix('num_').replace('_', ' ')}" for name in names]
    return f"{row['name']}: {', '.join(amounts)}; at {row['path']}"


def make_lines(attempt: "AttemptRecord | None") -> dict[str, str | None]:
    """Lines on code, command and machine of an attempt; none where nothing was recorded."""
    if attempt is None or attempt.code is None:
        return {}
    machine = machine_line(attempt.environment or {})
    return {"code": code_line(attempt.code), "command": attempt.command, "machine": machine}


def code_line(code: Mapping[str, Any]) -> str:
    """One line on code: `0.1.0, commit 1f2e3d4c5b6a and uncommitted changes of 2 files (a.py, b.py)`.

    >>> code_line({"version": "0.1.0", "commit": None, "reason": "git is not installed"})
    '0.1.0, no commit: git is not installed'
    """
    commit = code.get("commit")
    if not commit:
        return f"{code['version']}, no commit: {code.get('reason') or 'unknown why'}"
    if not code.get("diff_digest"):
        return f"{code['version']}, commit {commit[:_DIGEST_CHARS]}"
    files = code.get("changed_files") or ()
    named = ", ".join([*files[:_MAX_FILES_NAMED], *(["…"] if len(files) > _MAX_FILES_NAMED else [])])
    number = f"{len(files)} file{'s' * (len(files) != 1)}"
    return f"{code['version']}, commit {commit[:_DIGEST_CHARS]} and uncommitted changes of {number} ({named})"


def machine_line(machine: Mapping[str, Any]) -> str | None:
    """One line on a machine and its versions; None where nothing was recorded."""
    if not machine:
        return None
    gpus = machine.get("gpus") or ()
    driver = f", driver {machine['gpu_driver']}" if machine.get("gpu_driver") else ""
    memory = machine.get("memory_bytes")
    versions = machine.get("versions", {})
    parts = [
        machine.get("processor"),
        f"{machine['num_cores']} cores" if machine.get("num_cores") else None,
        f"{memory / 2**30:.0f} GiB" if memory else None,
        f"{', '.join(f'{gpus.count(each)} × {each}' for each in dict.fromkeys(gpus))}{driver}" if gpus else "no GPU",
        f"{machine.get('user')} on {machine.get('hostname')}",
        *(f"{name} {versions[name]}" for name in _VERSIONS_SHOWN if name in versions),
    ]
    return ", ".join(part for part in parts if part)
