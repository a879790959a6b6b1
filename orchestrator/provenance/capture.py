"""Capture of what a driver's runs are made with, when its session is opened: one value, kept with each attempt."""

import logging
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bert_core import __version__
from orchestrator.provenance.machine import read_machine
from orchestrator.provenance.secret_masking import mask_secrets, mask_words
from orchestrator.provenance.source_code import SourceCode, read_source_code


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


logger = logging.getLogger(__name__)

_PROGRAM = "orchestrator"
_MAX_COMMAND_CHARS = 8_000


def capture(overrides: Sequence[str] = ()) -> MadeWith:
    """Capture code, command and machine of this process; takes a fraction of a second, and never raises.

    Args:
        overrides: KEY=VALUE words as they were typed.
    """
    try:
        return MadeWith(
            read_source_code(),
            command_line(sys.orig_argv),
            tuple(mask_words(overrides)),
            asdict(read_machine()),
        )
    except Exception as error:  # a run is worth more than the record of its machine
        logger.debug("what this run is made with cannot be told", exc_info=True)
        return MadeWith(SourceCode(__version__, reason=f"could not be captured: {mask_secrets(str(error))[:200]}"))


def command_line(words: Sequence[str]) -> str:
    """Return the words of a process as a person would type them, secrets masked; of very many, the first ones.

    >>> command_line(["/lab/.venv/bin/python3", "/lab/.venv/bin/orchestrator", "run", "a b.yaml", "--token", "x"])
    "orchestrator run 'a b.yaml' --token '***'"
    >>> command_line(["/usr/bin/python3", "-m", "orchestrator.cli", "demo"])
    'python3 -m orchestrator.cli demo'
    """
    program, *rest = words or [_PROGRAM]
    if rest and Path(rest[0]).name == _PROGRAM:
        program, *rest = rest
    text = shlex.join([Path(program).name, *mask_words(rest)])
    return text if len(text) <= _MAX_COMMAND_CHARS else text[:_MAX_COMMAND_CHARS] + "…"
