"""Text of a spec: YAML with a comment above what a person may want to know or change."""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from orchestrator.drafting.request import DraftRequest, orchestrator_command

_WIDTH = 100


@dataclass(frozen=True)
class SpecDraft:
    """Values of a spec in their order, and comments by dotted key."""

    values: Mapping[str, Any]
    comments: Mapping[str, str] = field(default_factory=dict)
    """Comment above the line of a key, as in `recipe.epochs`."""

    def text(self, header: str) -> str:
        """The spec as YAML, below a comment about the whole.

        >>> print(SpecDraft({"kind": "sweep", "task": {"id": "own"}}, {"task.id": "Any name."}).text("Why."))
        # Why.
        kind: sweep
        task:
          # Any name.
          id: own
        <BLANKLINE>
        """
        return "\n".join([*_comment(header, ""), *_lines(self.values, "", self.comments)]) + "\n"


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
