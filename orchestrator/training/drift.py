"""Drift: what a run reads has changed between a checkpoint and the attempt that would go on from it.

A checkpoint carries digests of everything that decides the next steps (its identity), by part: spec, data, tokenizer,
teacher, versions. Where one differs, going on would mix two runs. That is refused, unless the attempt allows it; then
the run is marked. Beside the digests stand details, plain values that tell which field or file has changed.
"""

from collections.abc import Mapping
from typing import Any

import torch

import bert_core
from bert_core.errors import CheckpointError
from orchestrator.results import DriftEvent
from orchestrator.specs.differences import differences

_MAX_NAMED = 8
"""Fields and files that a message names at most."""


def versions() -> dict[str, str]:
    """Versions of the libraries that decide a training's numbers, as parts of an identity."""
    return {"torch": str(torch.__version__), "code": str(bert_core.__version__)}


def check_drift(saved: Mapping[str, Any], identity: Mapping[str, Any], details: Mapping[str, Any]) -> list[str]:
    """List what has changed since a checkpoint was saved, a line for each field or file; empty where nothing has.

    Args:
        saved: the checkpoint's JSON, with its `identity` and `details`. A part that it lacks is not compared.
        identity: digests of the attempt, by part.
        details: plain values of some of these parts.
    """
    known = saved["identity"]
    was_details: Mapping[str, Any] = saved.get("details", {})
    lines: list[str] = []
    for part, digest in identity.items():
        if part in known:
            (*found,) = differences({part: known[part]}, {part: digest})
            if found:
                named = list(differences({part: was_details.get(part, {})}, {part: details.get(part, {})}))
                lines += _lines(named if part in was_details and named else found)
    return lines


def accept_drift(lines: list[str], step: int, *, allowed: bool) -> list[DriftEvent]:
    """The event that marks a run, where something has changed and that is allowed; nothing where nothing has.

    Raises: CheckpointError, naming what has changed, where it is not allowed.
    """
    if not lines:
        return []
    if not allowed:
        raise CheckpointError(
            f"cannot resume from step {step}, since what the run reads has changed: {'; '.join(lines)}. "
            "Put the old state back, or start a new run; `resume --allow-drift` goes on all the same and marks the run"
        )
    return [DriftEvent(step, tuple(lines))]


def refuse_other_sizes(details: Mapping[str, Any], sizes: Mapping[str, str], step: int) -> None:
    """Check that text files are as large as when a checkpoint was saved, before anything reads them.

    Args:
        details: those of the checkpoint; one without sizes is not compared.
        sizes: sizes of the files now, by path.

    Raises: CheckpointError, naming what has changed.
    """
    if "corpus" in details:
        accept_drift(_lines(list(differences({"corpus": details["corpus"]}, {"corpus": sizes}))), step, allowed=False)


def _lines(found: list[tuple[tuple[str, ...], str]]) -> list[str]:
    # Parts of fine-tunings are called `the spec`, a field of it `spec.steps`.
    lines = [f"{'.'.join(path).removeprefix('the ')}: {change}" for path, change in found[:_MAX_NAMED]]
    return lines + ([f"and {len(found) - _MAX_NAMED} more"] if len(found) > _MAX_NAMED else [])
