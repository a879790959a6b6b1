"""Parts of a draft: what was found, the spec as commented YAML, the files beside it, and their writing."""

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from orchestrator.drafting.request import DraftRequest
from orchestrator.drafting.text import Characters, vocabulary_size
from orchestrator.errors import InputError
from orchestrator.models.resolve import resolve_model
from orchestrator.specs.loading import parse_spec
from orchestrator.specs.yaml_text import parse_document
from orchestrator.storage import exists, local_copy, write_bytes, write_chunks
from orchestrator.storage.uris import absolute

_WIDTH = 100


Finding = tuple[str, str]
"""One thing that was found or decided, for a person: its topic and a text."""


@dataclass(frozen=True)
class Draft:
    """A spec to be written, the files beside it, and what a person is told."""

    spec_path: str
    spec_text: str
    findings: Sequence[Finding]
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


def start_folder(request: DraftRequest) -> Path | None:
    """Folder of the model to start from, without its weights; None for random ones. Raises: NotFoundError."""
    if not request.model:
        return None
    return local_copy(resolve_model(request.model, request.settings), skip=(WEIGHTS_FILE,))


class _Commented(NamedTuple):
    """A value of a spec, and the comment above it."""

    value: Any
    comment: str


def commented(values: Mapping[str, Any], **comments: str) -> dict[str, Any]:
    """Values of a spec, some of which get a comment."""
    return {key: _Commented(value, comments[key]) if key in comments else value for key, value in values.items()}


def vocabulary_stage(
    corpus: Mapping[str, Any], characters: Characters, num_words: float, *, lowercase: bool = True
) -> dict[str, Any]:
    """The stage of a pipeline that learns a tokenizer's vocabulary."""
    vocab_size = vocabulary_size(num_words, characters.num_common)
    stage = {"kind": "tokenizer", "corpus": corpus, "vocab_size": vocab_size, "lowercase": lowercase}
    stage |= {"strip_accents": False} if characters.has_meaningful_marks else {}
    return commented(stage, vocab_size=f"As much as about {num_words:,.0f} words can teach.")


def marks_finding(characters: Characters) -> Iterator[Finding]:
    """Yield that a vocabulary keeps marks, as an uncased one alone would strip what carries meaning."""
    if characters.has_meaningful_marks:
        yield "marks", "letters here bear marks that carry meaning, as vowels do: they are kept (strip_accents: false)"


def spec_text(values: Mapping[str, Any], request: DraftRequest, spec_path: str) -> str:
    """A spec as YAML, below the command that drafted it and those that come next. Raises: SpecError for no spec."""
    plan, run = (shlex.join(("orchestrator", verb, spec_path)) for verb in ("plan", "run"))
    header = (
        f"Drafted by:\n  {request.command}\n"
        "Paths are meant from the folder in which the command is given. Change what you like, then:\n"
        f"  {plan}\n  {run}"
    )
    text = "\n".join([*_comment(header, ""), *_lines(values, "")]) + "\n"
    parse_spec(parse_document(text, spec_path).values)
    return text


def _lines(values: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, given in values.items():
        value, comment = given if isinstance(given, _Commented) else (given, "")
        yield from _comment(comment, indent)
        if isinstance(value, Mapping) and value:
            yield f"{indent}{_flow(key)}:"
            yield from _lines(value, indent + "  ")
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


def minutes_text(minutes: float) -> str:
    """A time that was estimated, as in `about 4 minutes`."""
    if minutes < 1.5:
        return "about a minute"
    return f"about {minutes:.0f} minutes" if minutes < 90 else f"about {minutes / 60:.1f} hours"
