"""Request for a draft: the files, and what a person says about them."""

import shlex
from dataclasses import dataclass, fields
from typing import Literal, get_args

from orchestrator.settings import Settings

DraftKind = Literal[
    "classification", "multi_label", "regression", "ner", "token_classification", "qa", "embedding", "pretraining"
]
DRAFT_KINDS: tuple[DraftKind, ...] = get_args(DraftKind)
"""Kinds of work that a draft can be of: heads of tasks, and pretraining on text."""
_START_S = 60.0
"""Seconds before the first step: Ray starts, text is read and tokenized."""
_OPTIONS = {name: f"--{name}" for name in ("output", "kind", "model", "minutes")} | {"label_column": "--label"}


@dataclass(frozen=True, kw_only=True)
class DraftRequest:
    """Files of data, and what a person has decided; what is left out is found in the data."""

    files: tuple[str, ...]
    output: str | None = None
    """Path of the spec; by the data's name in the current folder when left out."""
    kind: DraftKind | None = None
    text_columns: tuple[str, ...] = ()
    label_column: str | None = None
    model: str | None = None
    """Model to start from: a folder, or a registered name."""
    minutes: float = 10.0
    """Time that the run may take on this machine."""
    num_cores: int = 1
    gpus: tuple[str, ...] = ()
    """Model name of each GPU of this machine."""
    settings: Settings
    """Settings by which registered models are looked up."""

    @property
    def work_s(self) -> float:
        """Seconds for the work itself, after the start; at least half of all."""
        return max(30 * self.minutes, 60 * self.minutes - _START_S)

    @property
    def estimate(self) -> str:
        """Note on the way that times were estimated."""
        cores = "1 CPU core" if self.num_cores == 1 else f"{self.num_cores} CPU cores"
        return f"estimated for {cores}, not measured"

    @property
    def command(self) -> str:
        """The command that asks for this draft, to paste into a shell; options that say the default are left out."""
        words = [word for column in self.text_columns for word in ("--text", column)]
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _OPTIONS and value != field.default:
                words += [_OPTIONS[field.name], f"{value:g}" if isinstance(value, float) else str(value)]
        return shlex.join(("orchestrator", "init", *self.files, *words))
