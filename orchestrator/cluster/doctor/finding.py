"""Finding: the result of the check of one part, each problem with its remedy."""

from dataclasses import dataclass
from typing import Literal

from orchestrator.errors import OrchestratorError

GIB = 1 << 30
MIN_DISK_BYTES = 5 * GIB
"""Free disk below which a machine is told to be short of it."""

FindingState = Literal["ok", "note", "problem"]
"""`note`: something is limited; `problem`: something will not work."""


@dataclass(frozen=True)
class Finding:
    """Result of the check of one part."""

    part: str
    state: FindingState
    found: str
    remedy: str = ""


def problem_of(part: str, error: OrchestratorError, alternative: str = "") -> Finding:
    """Make the problem that an error is: what it says after its first semicolon is what to do.

    Args:
        alternative: another way out, for the end of the remedy.
    """
    found, _, remedy = str(error).partition("; ")
    remedies = [text for text in (remedy or "put that right, then run orchestrator doctor again", alternative) if text]
    return Finding(part, "problem", found, ", ".join(remedies))
