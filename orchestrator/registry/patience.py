"""Patience with a registry that does not answer: it is asked again, for an hour at most."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from orchestrator.errors import RegistryUnavailableError

if TYPE_CHECKING:
    from orchestrator.registry.registry import Registry

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

PATIENCE_S = 3600.0
"""Longest wait of a run for a registry that does not answer."""
RETRY_S = 5.0
"""Pause between two tries."""


def retry_while_unavailable(use: Callable[[], _T], given_up: threading.Event | None = None) -> _T:
    """Write to the registry, or read it; while it does not answer, say so once and try again, for PATIENCE_S at most.

    What it is given may be done twice: a broken connection leaves open whether the first try was committed. Once
    `given_up` is set, by another thread, nothing is tried again.

    Training goes on meanwhile: measurements wait in the event queue, and checkpoints carry what is not recorded, so
    that nothing is lost even when the driver ends before the registry is back.
    """
    give_up_at = time.monotonic() + PATIENCE_S
    has_said = False
    while True:
        try:
            return use()
        except RegistryUnavailableError as error:
            if time.monotonic() > give_up_at or (given_up is not None and given_up.is_set()):
                raise
            if not has_said:
                logger.warning("%s Trying again for %.0f minutes.", error, PATIENCE_S / 60)
            has_said = True
            if given_up is None:
                time.sleep(RETRY_S)
            else:
                given_up.wait(RETRY_S)


def patient(registry: Registry, given_up: threading.Event | None = None) -> Registry:
    """The registry, each of whose calls is tried again while it does not answer, as `retry_while_unavailable` does."""
    return cast("Registry", _Patient(registry, given_up))


class _Patient:
    """A registry, or one of its parts, whose methods wait for it; what they return does not, and there is no `with`."""

    def __init__(self, waited_for: object, given_up: threading.Event | None) -> None:
        self._waited_for, self._given_up = waited_for, given_up

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._waited_for, name)
        if isinstance(found, str):
            return found
        if not callable(found):
            return _Patient(found, self._given_up)
        return lambda *given, **named: retry_while_unavailable(lambda: found(*given, **named), self._given_up)
