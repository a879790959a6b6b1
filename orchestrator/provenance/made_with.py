"""All that a driver's runs are made with, as one frozen value that the registry keeps with each attempt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.provenance.source_code import SourceCode


@dataclass(frozen=True)
class MadeWith:
    """Code, command and machine of one driver; captured once, when its session is opened."""

    code: SourceCode
    command: str | None = None
    """Command line as it was typed, secrets masked; that of a notebook's server where it was a notebook."""
    overrides: Sequence[str] = ()
    """KEY=VALUE words as they were typed, secrets masked."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """Versions and machine as plain values (`Machine`)."""
