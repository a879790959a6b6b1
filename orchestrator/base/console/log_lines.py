"""Log lines of the project: times, counts and sizes in them, folding, pace, and the handlers that get them.

Each module has a logger of its own, `logging.getLogger(__name__)`. Handlers are attached to the project's loggers only
and only for the length of a block: a program that uses the packages as a library decides about their records.
"""

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

OWN_LOGGERS = tuple(logging.getLogger(package) for package in ("orchestrator", "bert_core"))
_UNDER_WAY = "is_under_way"
UNDER_WAY: Mapping[str, object] = MappingProxyType({_UNDER_WAY: True})
"""The `extra` of a record that says what is being done now: `logger.info("loading minilm", extra=UNDER_WAY)`.

On a terminal it is the status line until something else is under way; in a pipe and in a run's log it is a line.
"""
_WHOLE = re.compile(r"(?<=: )orchestrator .*|`[^`]*`")
"""Commands within a line, which must not be folded."""
_GLUE = "\u00a0"
"""A space at which nothing is folded."""
_INDENT = "  "


def duration(seconds: float) -> str:
    """Text of a length of time, short for people.

    >>> duration(59.4), duration(61), duration(3 * 3600 + 60)
    ('59 s', '1:01 min', '3:01 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def counted(number: float, noun: str) -> str:
    """Number and noun, in the plural unless it is one.

    >>> counted(1, "text"), counted(1200, "text"), counted(0.5, "GPU")
    ('1 text', '1,200 texts', '0.5 GPUs')
    """
    text = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{text} {noun}{'' if number == 1 else 's'}"


def names_text(names: Sequence[str], most: int = 6) -> str:
    """The first names of a list, and the number of the others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def size_text(num_bytes: int) -> str:
    """Text of a number of bytes, in kB, MB or GB where it is large enough.

    >>> size_text(123), size_text(1234), size_text(1_500_000), size_text(2_500_000_000)
    ('123 bytes', '1.2 kB', '1.5 MB', '2.50 GB')
    """
    if num_bytes < 1e3:
        return counted(num_bytes, "byte")
    if num_bytes < 1e6:
        return f"{num_bytes / 1e3:,.1f} kB"
    return f"{num_bytes / 1e9:,.2f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:,.1f} MB"


class Pace:
    """Tells when the next line of a kind may be said: the first one at once, later ones after an interval."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._last_at: float | None = None

    def is_due(self) -> bool:
        """Whether a line may be said now; the interval begins anew if so."""
        now = time.monotonic()
        if self._last_at is not None and now - self._last_at <= self._interval_s:
            return False
        self._last_at = now
        return True


def is_under_way(record: logging.LogRecord) -> bool:
    """Whether a record is a status, not an event."""
    return hasattr(record, _UNDER_WAY)


class LineFormatter(logging.Formatter):
    """Formatter of plain messages; a warning or error has its level in front."""

    def format(self, record: logging.LogRecord) -> str:
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


def folded(text: str, width: int | None) -> str:
    """Fold the lines of a text between words; indented lines, such as commands and tables, stay whole.

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
    """Wrap a text between words; a word wider than the width keeps a row of its own.

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
