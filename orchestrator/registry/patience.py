"""Patience with a registry that does not answer: it is asked again, for an hour at most."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from orchestrator.errors import RegistryUnavailableError

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

PATIENCE_S = 3600.0
"""Longest wait of a run for a registry that does not answer."""
RETRY_S = 5.0
"""Pause between two tries."""


def retry_while_unavailable(use: Callable[[], _T], given_up: threading.Event | None = None) -> _T:
    """Write to the registry, or read it; while it does not answer, warn once and try again, for PATIENCE_S at most.

    It may be done twice: a broken connection leaves open whether the first try was committed. Training goes on
    meanwhile: measurements wait in the event queue, and checkpoints carry what is not recorded.

    Args:
        given_up: once another thread has set it, nothing is tried again.
    """
    given_up = given_up or threading.Event()
    give_up_at, has_said = time.monotonic() + PATIENCE_S, False
    while True:
        try:
            return use()
        except RegistryUnavailableError as error:
            if given_up.is_set() or time.monotonic() > give_up_at:
                raise
            if not has_said:
                logger.warning("%s Trying again for %.0f minutes.", error, PATIENCE_S / 60)
            has_said = True
        given_up.wait(RETRY_S)


def patient(registry: _T, given_up: threading.Event | None = None) -> _T:
    """A registry, or a part of it, whose methods wait for it; what they return does not, and it has no `with`."""
    return cast(_T, _Patient(registry, given_up))


class _Patient:
    def __init__(self, registry: object, given_up: threading.Event | None) -> None:
        self._registry, self._given_up = registry, given_up

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._registry, name)
        if callable(found):
            return lambda *given, **named: retry_while_unavailable(lambda: found(*given, **named), self._given_up)
        return found if isinstance(found, str) else patient(found, self._given_up)
