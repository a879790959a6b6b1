"""Man pages from the help of the commands: the same words, in the sections that a manual has.

One page for each command and group, in the language of groff's man macros. click-man makes such pages too, but neither
examples nor exit statuses, which stand in ours.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from orchestrator import __version__
from orchestrator.cli.frame import GlobalOptionsCommand
from orchestrator.cli.topics import load_topics, table_rows

_SPECIAL = {"\\": "\\e", "-": "\\-", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}
"""Characters that groff would take for escapes, or print as others."""


def write_man_pages(root: click.Group, folder: str) -> list[str]:
    """Write a page for every command that the help lists; returns the names of the files, the overview's first."""
    from orchestrator.storage import write_bytes

    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    names = []
    for context in _contexts(click.Context(root, info_name="orchestrator", **root.context_settings)):
        name = f"{_page_name(context)}.1"
        write_bytes(str(place / name), man_page(context).encode())
        names.append(name)
    return names


def man_page(context: click.Context) -> str:
    """Page of one command: NAME, SYNOPSIS, DESCRIPTION, OPTIONS, COMMANDS, EXAMPLE, EXIT STATUS, SEE ALSO."""
    command = context.command
    records = [one.get_help_record(context) for one in command.get_params(context)]
    options = [record for record in records if record and record[1]]
    lines = [f'.TH "{_page_name(context).upper()}" "1" "" "orchestrator {__version__}" "Commands of orchestrator"']
    lines += [".SH NAME", f"{_escaped(_page_name(context))} \\- {_escaped(_summary(command))}"]
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines += [".SH SYNOPSIS", f".B {_escaped(usage)}", ".SH DESCRIPTION", *_paragraphs(command.help or "")]
    lines += [".SH OPTIONS", *(line for option in options for line in _entry(*option))]
    if isinstance(command, GlobalOptionsCommand):
        lines += [".PP", "The options of orchestrator(1), such as \\-\\-registry, may stand here too."]
    below = [one for one in _contexts(context) if one.parent is context]
    if below:
        lines.append(".SH COMMANDS")
        for one in below:
            lines += _entry(f"{_page_name(one)}(1)", _summary(one.command))
    if isinstance(command, GlobalOptionsCommand) and command.example:
        lines += [".SH EXAMPLE", ".EX", *map(_escaped, command.example.strip().splitlines()), ".EE"]
    lines.append(".SH EXIT STATUS")
    for status, meaning in table_rows(load_topics()["exit-status"].text):
        lines += _entry(status, meaning)
    above = context.parent or context
    lines += [".SH SEE ALSO", f".BR {_escaped(_page_name(above))} (1)", ".PP", *_paragraphs(_more())]
    return "\n".join(lines) + "\n"


def _summary(command: click.Command) -> str:
    return command.get_short_help_str(200).rstrip(".")


def _more() -> str:
    return f"Texts about topics, by `orchestrator help TOPIC`: {', '.join(load_topics())}."


def _contexts(context: click.Context) -> Iterator[click.Context]:
    """The contexts of a command and of all commands below it that the help lists."""
    yield context
    if isinstance(context.command, click.Group):
        for name, command in context.command.commands.items():
            if not command.hidden:
                yield from _contexts(click.Context(command, info_name=name, parent=context))


def _page_name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        yield ".PP"
        yield _escaped(" ".join(paragraph.split()))


def _entry(term: str, meaning: str) -> list[str]:
    """A term in bold, and its meaning indented below it."""
    return [".TP", f".B {_escaped(term)}", _escaped(" ".join(meaning.split()))]


def _escaped(text: str) -> str:
    """Text that groff prints as it stands: no escapes, no requests, hyphens that can be searched and copied."""
    escaped = "".join(_SPECIAL.get(c, c if c.isascii() else f"\\[u{ord(c):04X}]") for c in text)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
