"""Warnings that are logged in Ray's processes, told to a person by the driver.

What Ray's processes log reaches nobody, since Ray is started without `log_to_driver`, which would bring Ray's own lines
too. A warning for a person therefore travels as a value:

    a process of Ray     with attached(warnings): work()        its warnings are collected (`CollectedWarnings`)
                         result, warnings.take()                and go with the next result
    the driver           relay.tell(warnings)                   logs each text once, whichever process it comes from

Trials, distillations and pretraining workers send their warnings as events, among the others that they have.
"""

import logging
from collections.abc import Iterable

logger = logging.getLogger(__name__)


class CollectedWarnings(logging.Handler):
    """Handler that keeps the texts of warnings until they are taken; to be attached around the work of a process."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message of a record."""
        self._texts.append(record.getMessage())

    def take(self) -> tuple[str, ...]:
        """Return the texts that nobody has taken yet, each once, in the order in which they came."""
        texts, self._texts = self._texts, []
        return tuple(dict.fromkeys(texts))


class WarningRelay:
    """Logs in the driver what Ray's processes have warned of, each text once."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, warnings: Iterable[str]) -> None:
        """Log those texts that are new."""
        for text in warnings:
            if text not in self._told:
                self._told.add(text)
                logger.warning(text)
