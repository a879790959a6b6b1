"""Request for a draft, the files and what a person says about them; the stages that answer it."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, get_args

from orchestrator.base.settings import Settings

DraftKind = Literal[
    "classification", "multi_label", "regression", "ner", "token_classification", "qa", "embedding", "pretraining"
]
DRAFT_KINDS: tuple[DraftKind, ...] = get_args(DraftKind)
"""Kinds of work that a draft can be of: heads of tasks, and pretraining on text."""
_START_S = 60.0
"""Seconds before the first step: Ray starts, text is read and tokenized."""
_OPTIONS = {name: f"--{name}" for name in ("output", "kind", "model", "minutes")} | {"label_column": "--label"}
Finding = tuple[str, str]
"""One thing that was found or decided, for a person: its topic and a text."""


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
    minutes: float = 10.0
    num_cores: int = 1
    gpus: tuple[str, ...] = ()
    settings: Settings

    @property
    def work_s(self) -> float:
        """Seconds for the work itself, after the start; at least half of all."""
        return max(30 * self.minutes, 60 * self.minutes - _START_S)

    def estimate(self, minutes: float, what: str = "") -> str:
        """A time that was estimated and how, as in `about 4 minutes (estimated for 1 CPU core, not measured)`."""
        took = f"about {minutes:.0f} minutes" if minutes < 90 else f"about {minutes / 60:.1f} hours"
        cores = "1 CPU core" if self.num_cores == 1 else f"{self.num_cores} CPU cores"
        return f"{'about a minute' if minutes < 1.5 else took}{what} (estimated for {cores}, not measured)"

    @property
    def command(self) -> str:
        """The command that asks for this draft, to paste into a shell; options that say the default are left out."""
        words = [word for column in self.text_columns for word in ("--text", column)]
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _OPTIONS and value != field.default:
                words += [_OPTIONS[field.name], f"{value:g}" if isinstance(value, float) else str(value)]
        return shlex.join(("orchestrator", "init", *self.files, *words))


class DraftedStages(NamedTuple):
    """The stages of a run that data are for, and what a person is told."""

    stages: Mapping[str, Mapping[str, Any]] = {}
    """Values by the stage's name; with random weights the stage `tokenizer` comes first."""
    comments: Mapping[str, str] = {}
    """Comments by the path of the value that each stands above, as in `finetuning.recipe.epochs`."""
    findings: Sequence[Finding] = ()
    side_files: Mapping[str, Iterable[bytes]] = {}
    """Content of the files beside the spec, by path; made while it is written."""
