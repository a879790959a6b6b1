"""Errors of this project, of both trees, found in what Ray raises."""

from bert_core.errors import BertCoreError
from orchestrator.base.errors import OrchestratorError

OwnError = OrchestratorError | BertCoreError
"""Type of an error of this project, of either tree."""
OWN_ERRORS = (OrchestratorError, BertCoreError)
"""Both trees, for `except` and `isinstance`: errors that would come again after a restart."""


def last_line(error: BaseException) -> str:
    """Last line of an error that came through Ray."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def own_error(error: BaseException) -> OwnError | None:
    """Error of this project that a task raised and Ray wrapped; None if it was another's."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(cause := getattr(seen, "cause", None), BaseException):
            seen = cause  # Ray raises a subclass of it, too, whose text is a traceback
        elif isinstance(seen, OWN_ERRORS):
            return seen
        else:
            seen = seen.__cause__
    return None
