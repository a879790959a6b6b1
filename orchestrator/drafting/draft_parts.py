"""Parts of a draft: what was found, where files go, and what is written."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Self

from orchestrator.errors import InputError
from orchestrator.tasks.catalogue import KNOWN_TASKS


@dataclass(frozen=True)
class Finding:
    """One thing that was found or decided, for a person."""

    topic: str
    text: str


MARKS_FINDING = Finding(
    "marks", "letters here bear marks that carry meaning, as vowels do: kept, and capitals with them (lowercase: false)"
)
"""Finding of a text whose vocabulary is cased, since an uncased one would strip marks that carry meaning."""


@dataclass(frozen=True)
class Naming:
    """Names of what a draft writes."""

    spec_path: str
    title: str
    """The data's name."""

    @classmethod
    def of(cls, spec_path: str, title: str) -> Self:
        """The names for a spec at a path. Raises: InputError for a path that does not end in .yaml."""
        if not spec_path.endswith((".yaml", ".yml")):
            raise InputError(f"-o {spec_path}: a spec's name ends in .yaml; name it so")
        return cls(spec_path, title)

    @property
    def task_id(self) -> str:
        """Id of a task of one's own, which is no published task's."""
        name = re.sub(r"\W+", "_", self.title.lower())
        return f"{name}_own" if name in KNOWN_TASKS else name

    def beside(self, part: str) -> str:
        """Path of a file beside the spec, as in `reviews.train.csv`."""
        path = PurePath(self.spec_path)
        return str(path.with_name(f"{path.stem}.{part}"))


@dataclass(frozen=True)
class Draft:
    """A spec to be written, the files beside it, and what a person is told."""

    spec_path: str
    spec_text: str
    findings: tuple[Finding, ...]
    side_files: Mapping[str, Iterable[bytes]] = field(default_factory=dict)
    """Content of the files beside the spec, by path; made while it is written."""


def share_text(count: int, total: int) -> str:
    """A share in percent, as in `61 %`.

    >>> share_text(3, 5), share_text(1, 1000)
    ('60 %', '0.1 %')
    """
    percent = 100 * count / max(1, total)
    return f"{percent:.0f} %" if percent >= 1 else f"{percent:.1f} %"


def minutes_text(minutes: float) -> str:
    """A time that was estimated, as in `about 4 minutes`."""
    if minutes < 1.5:
        return "about a minute"
    return f"about {minutes:.0f} minutes" if minutes < 90 else f"about {minutes / 60:.1f} hours"


def epochs_text(epochs: float) -> str:
    """A number of epochs, as in `3 epochs`."""
    return "1 epoch" if epochs == 1 else f"{epochs:g} epochs"
