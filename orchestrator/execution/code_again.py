"""Code and versions of a recorded run, to be had again: the commands for it, and what stands in their way."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator.provenance.machine import installed_versions
from orchestrator.provenance.source_code import has_commit, read_source_code
from orchestrator.registry.records import AttemptRecord

_CHECKOUT = Path(__file__).resolve().parents[2]
_GIT = f"git -C {shlex.quote(str(_CHECKOUT))}"
_NO_PACKAGES = ("python", "cuda", "bert-orchestrator")
"""Versions that pip does not install: the interpreter, what torch was built for, and this package."""


def has_code_of_now(make: AttemptRecord | None) -> bool:
    """Whether an attempt ran the code that runs now."""
    code = _code(make)
    return bool(code) and _is_code_of_now(code)


def code_command(make: AttemptRecord | None, folder: str, diff_place: str) -> str | None:
    """Command that puts the code of an attempt into a folder of its own; None where it is that of now, or not known.

    The checkout that this program runs from stays as it is, with what is changed in it. A folder that is there already
    is left as it is.

    Args:
        folder: folder for the code, a git worktree, as a word of a shell.
        diff_place: file that holds its uncommitted changes by then, as a word of a shell.
    """
    code = _code(make)
    if make is None or not code.get("commit") or _is_code_of_now(code):
        return None
    command = f"{_GIT} worktree add --detach {folder} {code['commit']}"
    changes = f" && git -C {folder} apply {diff_place}" if make.diff_digest else ""
    return f"[ -d {folder} ] || {{ {command}{changes}; }}"


def removal_command(folder: str) -> str:
    """Command that removes the folder which `code_command` makes."""
    return f"{_GIT} worktree remove --force {folder}"


def code_obstacles(make: AttemptRecord | None) -> list[str]:
    """Reasons why the code of an attempt cannot be put back as it was."""
    return list(_code_obstacles(make))


def _code_obstacles(make: AttemptRecord | None) -> Iterator[str]:
    code = _code(make)
    if make is None or not code:
        yield "its code was not recorded: the run is older than such records"
        return
    if _is_code_of_now(code):
        return
    if not code.get("commit"):
        yield f"its code is known by its version alone, {code['version']}: {code.get('reason')}"
        return
    here = read_source_code()
    if here.commit is None:
        yield f"this program runs from no checkout ({here.reason}); clone the project, then use its commands there"
    elif not has_commit(str(code["commit"])):
        yield f"commit {code['commit'][:12]} is not in the checkout at {_CHECKOUT}; fetch it first"
    if code.get("diff_digest") and make.diff_digest is None:
        files = ", ".join(code.get("changed_files") or ())
        yield f"its uncommitted changes were not kept: {code['diff_bytes']:,} bytes are too many, or no text ({files})"
    elif code.get("has_masked_secrets"):
        yield "its uncommitted changes held secrets, which were masked; set them again where *** stands"


def version_commands(make: AttemptRecord | None) -> list[str]:
    """Command that installs the recorded versions of libraries, where other ones are installed now."""
    recorded: Mapping[str, str] = ((make.environment if make else None) or {}).get("versions", {})
    now = installed_versions()
    others = [f"{name}=={version}" for name, version in recorded.items() if now.get(name) != version]
    wanted = [shlex.quote(each) for each in others if each.partition("==")[0] not in _NO_PACKAGES]
    python = recorded.get("python")
    remark = f"  # under Python {python}" if python and python != now["python"] else ""
    return [f"python -m pip install {' '.join(wanted)}{remark}"] if wanted else []


def _code(make: AttemptRecord | None) -> Mapping[str, Any]:
    return (make.code if make else None) or {}


def _is_code_of_now(code: Mapping[str, Any]) -> bool:
    now = read_source_code()
    return (code["version"], code.get("commit"), code.get("diff_digest")) == (now.version, now.commit, now.diff_digest)
