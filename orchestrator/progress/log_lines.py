"""Log lines of the project: how they read, and who is given them for the length of a block.

Each module has a logger of its own, `logging.getLogger(__name__)`. Handlers are attached to the project's loggers only
and only for the length of a block: who uses the packages as a library decides what becomes of their records.
"""

import logging
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
