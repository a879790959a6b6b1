"""The pause of the garbage collector ends as it began, also after an error and within another pause.

pytest tests/orchestrator/registry/test_collection_pause.py
"""

import gc
from collections.abc import Iterator

import pytest

from orchestrator.registry.collection_pause import paused_collection


@pytest.fixture(params=[True, False], autouse=True)
def enabled(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether the collector runs before the pause."""
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_the_collector_runs_again_if_it_did(enabled: bool) -> None:
    with paused_collection():
        assert not gc.isenabled()
        with paused_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() is enabled


def test_pauses_of_two_threads_end_in_any_order(enabled: bool) -> None:
    first, second = paused_collection(), paused_collection()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert gc.isenabled() is enabled


def test_also_after_an_error_and_at_each_call_of_a_function(enabled: bool) -> None:
    @paused_collection()
    def fail() -> None:
        assert not gc.isenabled()
        raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            fail()
        assert gc.isenabled() is enabled
