"""Errors of the project in what Ray raises. Alone: pytest tests/orchestrator/cluster/test_own_errors.py"""

import pytest
from ray.exceptions import RayTaskError

from orchestrator.base.errors import CorpusError
from orchestrator.cluster.own_errors import own_error


def raised(cause: Exception) -> Exception:
    """Error that `ray.get` raises for a task that raised `cause`: its class derives from both classes."""
    found = RayTaskError("read", f"Traceback\n  File x\n{cause}", cause).as_instanceof_cause()
    assert isinstance(found, type(cause))
    return found


def test_an_own_error_comes_back_with_its_message_alone() -> None:
    cause = CorpusError("a.txt: line 3 is not UTF-8")
    assert own_error(raised(cause)) is cause


@pytest.mark.parametrize("error", [ValueError("odd"), RuntimeError("boom")])
def test_errors_of_others_are_not_own(error: Exception) -> None:
    assert own_error(raised(error)) is None
