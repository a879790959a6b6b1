"""Parts of a draft: what was found, the spec as commented YAML, the files beside it, and their writing."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Self

import yaml

from orchestrator.drafting.request import DraftRequest, orchestrator_command
from orchestrator.errors import InputError
from orchestrator.storage import exists, write_bytes, write_chunks
from orchestrator.storage.uris import absolute
from orchestrator.tasks.catalogue import KNOWN_TASKS

_WIDTH = 100


@dataclass(frozen=True)
class Finding:
    """One thing that was found or decided, for a person."""

    topic: str
    text: str


MARKS_FINDING = Finding(
    "marks", "letters here bear marks that carry meaning, as vowels do: they are kept (strip_accents: false)"
)
"""Finding of a text whose vocabulary keeps marks, as an uncased one alone would strip what carries meaning."""


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
        """Path of a file beside the spec, as in `reviews.train.jsonl`."""
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

    def check_targets(self, inputs: Sequence[str], *, force: bool) -> None:
        """Check that no file is in the way. Raises: InputError, naming those that are."""
        targets = [*self.side_files, self.spec_path]
        originals = {absolute(path) for path in inputs}
        for target in targets:
            if absolute(target) in originals:
                raise InputError(
                    f"{target} would be written over, and it is the data itself; name another spec with -o FILE"
                )
        there = [target for target in targets if exists(target)]
        if there and not force:
            verb = "is" if len(there) == 1 else "are"
            raise InputError(
                f"{', '.join(there)} {verb} there already; write over with --force, or name another spec with -o FILE"
            )

    def write(self) -> list[str]:
        """Write the files beside the spec, then the spec; returns their paths."""
        for path, chunks in self.side_files.items():
            write_chunks(path, chunks)
        write_bytes(self.spec_path, self.spec_text.encode())
        return [*self.side_files, self.spec_path]


def spec_text(values: Mapping[str, Any], comments: Mapping[str, str], header: str) -> str:
    """A spec as YAML, below a comment about the whole, with comments above the lines of dotted keys.

    >>> print(spec_text({"kind": "sweep", "task": {"id": "own"}}, {"task.id": "Any name."}, "Why."))
    # Why.
    kind: sweep
    task:
      # Any name.
      id: own
    <BLANKLINE>
    """
    return "\n".join([*_comment(header, ""), *_lines(values, "", comments)]) + "\n"


def spec_header(request: DraftRequest, spec_path: str) -> str:
    """The comment above a drafted spec: the command that drafted it, and those that come next."""
    return (
        f"Drafted by:\n  {request.command}\n"
        "Paths are meant from the folder in which the command is given. Change what you like, then:\n"
        f"  {orchestrator_command('plan', spec_path)}\n  {orchestrator_command('run', spec_path)}"
    )


def _lines(values: Mapping[str, Any], above: str, comments: Mapping[str, str]) -> Iterator[str]:
    indent = "  " * above.count(".")
    for key, value in values.items():
        path = f"{above}{key}"
        yield from _comment(comments.get(path, ""), indent)
        if isinstance(value, Mapping) and value:
            yield f"{indent}{_flow(key)}:"
            yield from _lines(value, f"{path}.", comments)
        else:
            yield f"{indent}{_flow(key)}: {_flow(value)}"


def _comment(text: str, indent: str) -> Iterator[str]:
    for paragraph in text.splitlines():
        # A command is not broken: it is to be pasted.
        whole = [paragraph] if paragraph.startswith("  ") else textwrap.wrap(paragraph, _WIDTH - len(indent) - 2)
        yield from (f"{indent}# {line}" for line in whole)


def _flow(value: object) -> str:
    """A value on one line, quoted where YAML needs it; 1e-05 gets the point without which YAML takes it for text."""
    text: str = yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=1 << 30, sort_keys=False)
    return text.strip()[1:-1]


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
