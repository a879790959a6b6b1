"""YAML of specs: plain values, each with the file and line it came from.

Read by the rules of YAML 1.2's core schema, so that `1e-4` is a number and `no` is text. Refused: keys given twice,
tags that make objects, and aliases that unfold to more than a spec could ever need. Written with comments above values.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from orchestrator.base.errors import SpecError

MAX_FILE_BYTES = 1 << 20
MAX_VALUES = 20_000
"""Values of a spec at most, aliases unfolded."""
MAX_DEPTH = 100
_COMMENT_WIDTH = 100

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class SourceLocation:
    """File and line where a value was written."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


@dataclass(frozen=True)
class YamlDocument:
    """A mapping, and the place of each value in it."""

    values: dict[str, Any]
    places: dict[KeyPath, SourceLocation]


class _CoreSchemaLoader(yaml.SafeLoader):
    """SafeLoader that reads bare words by the rules of YAML 1.2."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own way to say it)
        first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] in ("null", "merge")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_CoreSchemaLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_CoreSchemaLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$"), list("-+0123456789")
)
_CoreSchemaLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^(?!0[0-9_]+$)[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)


def read_document(path: Path) -> YamlDocument:
    """The mapping a file holds. Raises: SpecError, naming file and line."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise SpecError(f"{path} has {size:,} bytes; a spec is a YAML file of at most {MAX_FILE_BYTES:,}")
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"{path} is not UTF-8 text (byte {error.start}); a spec is a YAML file") from error
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}") from error
    return parse_document(text, str(path))


def parse_document(text: str, source: str) -> YamlDocument:
    """The mapping that `text` holds. Raises: SpecError, naming `source` and line."""
    values, places = _parse(text, source)
    if values is None:
        raise SpecError(f"{source} is empty; a spec begins with a line such as `kind: sweep`")
    if not isinstance(values, dict):
        raise SpecError(
            f"{source}: a spec is a mapping of fields, such as `kind: sweep`; this is not one. A spec for a "
            "file of data is written by: orchestrator init FILE"
        )
    return YamlDocument(values, places)


def parse_value(text: str, source: str) -> Any:
    """One YAML value, as an override gives it; `@stage` needs no quotes here. Raises: SpecError."""
    return text if text.startswith("@") else _parse(text, source)[0]


def _parse(text: str, source: str) -> tuple[Any, dict[KeyPath, SourceLocation]]:
    places: dict[KeyPath, SourceLocation] = {}
    try:
        loader = _CoreSchemaLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None, places
        _note_places(node, (), source, places)
        return _copy(loader.construct_document(node)), places
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = SourceLocation(source, None if mark is None else mark.line + 1)
        raise SpecError(f"{where}: not valid YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise SpecError(f"{source}: not valid YAML: {error}") from error
    except RecursionError as error:
        raise SpecError(f"{source}: nested too deeply for a spec") from error


def _copy(value: Any) -> Any:
    """Deep copy in which YAML aliases do not share objects."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _note_places(node: yaml.Node, path: KeyPath, source: str, places: dict[KeyPath, SourceLocation]) -> None:
    """Remember each value's line; on the way, refuse keys given twice or that are no text, and endless aliases."""
    places[path] = SourceLocation(source, node.start_mark.line + 1)
    if len(places) > MAX_VALUES or len(path) > MAX_DEPTH:
        raise SpecError(
            f"{places[path]}: more than {MAX_VALUES:,} values, or {MAX_DEPTH} inside one another, where aliases are "
            "unfolded; write a smaller spec"
        )
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _note_places(item, (*path, index), source, places)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or key.tag.rpartition(":")[2] not in ("str", "merge"):
            shown = key.value if isinstance(key, yaml.ScalarNode) else "a list or mapping"
            raise SpecError(f"{source}:{line}: the key {shown} is no text; put it in quotes")
        if key.value in seen:
            raise SpecError(
                f"{source}:{line}: the key {key.value!r} stands on line {seen[key.value]} already; keep one"
            )
        seen[key.value] = line
        _note_places(value, (*path, key.value), source, places)
        places[(*path, key.value)] = SourceLocation(source, line)


def commented_lines(
    values: Mapping[str, Any], comments: Mapping[str, str], above: str = "", indent: str = ""
) -> Iterator[str]:
    """Lines of YAML, each value below the comment on its path, as in `recipe.epochs`."""
    for key, value in values.items():
        yield from comment_lines(comments.get(above + key, ""), indent)
        if isinstance(value, Mapping) and value:
            yield f"{indent}{_flow(key)}:"
            yield from commented_lines(value, comments, f"{above}{key}.", indent + "  ")
        else:
            yield f"{indent}{_flow(key)}: {_flow(value)}"


def comment_lines(text: str, indent: str = "") -> Iterator[str]:
    """A text as comments; indented lines of it, as commands are, stay whole: they are to be pasted."""
    for paragraph in text.splitlines():
        width = _COMMENT_WIDTH - len(indent) - 2
        whole = [paragraph] if paragraph.startswith("  ") else textwrap.wrap(paragraph, width)
        yield from (f"{indent}# {line}" for line in whole)


def _flow(value: object) -> str:
    """A value on one line, quoted where YAML needs it; 1e-05 gets the point without which YAML takes it for text."""
    text: str = yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=1 << 30, sort_keys=False)
    return text.strip()[1:-1]
