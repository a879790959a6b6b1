"""Warnings that are logged in Ray's processes, told to a person by the driver.

What Ray's processes log reaches nobody, since Ray is started without `log_to_driver`, which would bring Ray's own lines
too. A warning for a person therefore travels as a value:

    a process of Ray     with attached(warnings): work()        its warnings are collected (`CollectedWarnings`)
                         result, warnings.take()                and go with the next result

Trials, distillations and pretraining workers send their warnings as events, among the others that they have.
"""

import logging


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
