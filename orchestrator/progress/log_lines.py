"""Log lines of the project: how they read, how they fold, and who is given them for the length of a block.

Each module has a logger of its own, `logging.getLogger(__name__)`. Handlers are attached to the project's loggers only
and only for the length of a block: who uses the packages as a library decides what becomes of their records.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

OWN_LOGGERS = tuple(logging.getLogger(package) for package in ("orchestrator", "bert_core"))

_UNDER_WAY = "is_under_way"
UNDER_WAY: Mapping[str, object] = MappingProxyType({_UNDER_WAY: True})
"""The `extra` of a record that says what is being done now: `logger.info("loading minilm", extra=UNDER_WAY)`.

On a terminal it is the status line until something else is under way; in a pipe and in a run's log it is a line.
"""


def is_under_way(record: logging.LogRecord) -> bool:
    """Whether a record says what is being done now."""
    return hasattr(record, _UNDER_WAY)


class LineFormatter(logging.Formatter):
    """The message of a record; what is more than information has its level in front."""

    def format(self, record: logging.LogRecord) -> str:
        """The line without its line feed."""
        line = super().format(record)
        return f"{record.levelname.lower()}: {line}" if record.levelno > logging.INFO else line


@contextmanager
def attached(handler: logging.Handler) -> Iterator[None]:
    """Give a handler the records of the project's own loggers during the block, information included."""
    without_level = [own for own in OWN_LOGGERS if own.level == logging.NOTSET]
    for own in OWN_LOGGERS:
        own.addHandler(handler)
    for own in without_level:
        own.setLevel(logging.INFO)
    try:
        yield
    finally:
        for own in OWN_LOGGERS:
            own.removeHandler(handler)
        for own in without_level:
            own.setLevel(logging.NOTSET)


_WHOLE = re.compile(r"(?<=: )orchestrator .*|`[^`]*`")
"""Commands within a line, which are to be copied as they stand."""
_GLUE = "\u00a0"
"""A space at which nothing is folded."""
_INDENT = "  "


def folded(text: str, width: int | None) -> str:
    """The text with its lines folded between words; those that are indented, as commands and tables are, stay whole.

    Args:
        width: columns of the terminal; None leaves the text as it is.

    >>> print(folded("a rather long line with a remedy: orchestrator resume 7f3a", 28))
    a rather long line with a
      remedy:
      orchestrator resume 7f3a
    """
    return text if width is None else "\n".join(_folded_line(line, width) for line in text.split("\n"))


def _folded_line(line: str, width: int) -> str:
    if line[:1].isspace() or (len(line) <= width and line.isascii()):
        return line
    glued = _WHOLE.sub(lambda command: command.group().replace(" ", _GLUE), line)
    whole = wrapped(glued, width)
    rows = whole if len(whole) == 1 else wrapped(glued, width - len(_INDENT))
    return f"\n{_INDENT}".join(rows).replace(_GLUE, " ")


def wrapped(text: str, width: int) -> list[str]:
    """The text in rows no wider than that, cut between words alone: a word that is wider keeps a row of its own.

    >>> wrapped("the text of a cell", 11)
    ['the text of', 'a cell']
    """
    from rich.cells import cell_len

    rows: list[str] = []
    for word in text.split(" "):
        if rows and cell_len(rows[-1]) + 1 + cell_len(word) <= width:
            rows[-1] += f" {word}"
        else:
            rows.append(word)
    return rows
