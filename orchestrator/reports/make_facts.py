"""Lines on what a run was made with, for `runs show` and for reports: its code, its command, its machine."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.registry.records import AttemptRecord

_MAX_FILES_TOLD = 3
_TOLD_VERSIONS = ("python", "torch", "cuda", "ray")


def make_lines(attempt: "AttemptRecord | None") -> dict[str, str | None]:
    """Lines on an attempt that are read first; none where nothing was recorded."""
    if attempt is None or attempt.code is None:
        return {}
    return {
        "code": code_line(attempt.code),
        "command": attempt.command,
        "machine": machine_line(attempt.environment or {}),
    }


def whole_make(attempt: "AttemptRecord | None") -> dict[str, Any]:
    """Fields of all that is recorded of what an attempt was made with, without the changes of its code themselves."""
    from orchestrator.registry.parameter_values import flatten

    if attempt is None or attempt.code is None:
        return {}
    machine = {f"made_with.{name}": value for name, value in flatten(attempt.environment or {}).items()}
    code = {f"made_with.code.{name}": value for name, value in attempt.code.items()}
    return {"made_with.command": attempt.command, "made_with.overrides": attempt.overrides, **code, **machine}


def code_line(code: Mapping[str, Any]) -> str:
    """One line on code: `0.1.0, commit 1f2e3d4c5b6a and changes of 2 files (a.py, b.py)`.

    >>> code_line({"version": "0.1.0", "commit": None, "reason": "git is not installed"})
    '0.1.0, no commit: git is not installed'
    """
    commit = code.get("commit")
    if not commit:
        return f"{code['version']}, no commit: {code.get('reason') or 'unknown why'}"
    files = code.get("changed_files") or ()
    if not code.get("diff_digest"):
        return f"{code['version']}, commit {commit[:12]}"
    named = ", ".join([*files[:_MAX_FILES_TOLD], *(["…"] if len(files) > _MAX_FILES_TOLD else [])])
    number = f"{len(files)} file{'s' * (len(files) != 1)}"
    return f"{code['version']}, commit {commit[:12]} and uncommitted changes of {number} ({named})"


def machine_line(machine: Mapping[str, Any]) -> str | None:
    """One line on a machine and its versions; None where nothing is known of it."""
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
        *(f"{name} {versions[name]}" for name in _TOLD_VERSIONS if name in versions),
    ]
    return ", ".join(part for part in parts if part)
