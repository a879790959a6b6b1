"""A head that goes, comes back, or cannot be reached. Alone: pytest tests/orchestrator/cluster/test_head_watch.py"""

import socket

import pytest

from orchestrator.base.errors import ClusterError
from orchestrator.cluster.head_watch import HeadWatch


class Head:
    """A head that answers as long as it lives, and the clock of its watcher."""

    def __init__(self) -> None:
        self.now, self.lives = 0.0, True

    def watch(self, seconds: float, watch: HeadWatch) -> None:
        """Look four times a second."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.25
            watch.look()


def test_a_head_that_has_gone_ends_the_run_within_rays_minute() -> None:
    head = Head()
    watch = HeadWatch("10.0.0.1:6379", "resume it", lambda address: head.lives, lambda: head.now)
    head.watch(300, watch)
    head.lives = False
    with pytest.raises(
        ClusterError, match=r"head at 10\.0\.0\.1:6379 has not answered for .* s: .*; .* then resume it"
    ):
        head.watch(3600, watch)
    assert head.now - 300 < 45


def test_a_head_that_comes_back_in_time_is_forgiven_and_one_that_cannot_be_reached_from_here_not_watched() -> None:
    head = Head()
    watch = HeadWatch("10.0.0.1:6379", "resume it", lambda address: head.lives, lambda: head.now)
    for _ in range(3):
        head.lives = False
        head.watch(20, watch)
        head.lives = True
        head.watch(20, watch)
    assert head.now == 120
    head.lives = False
    head.watch(3600, HeadWatch("", "resume it", clock=lambda: head.now))


def test_a_head_answers_by_taking_connections() -> None:
    head = Head()
    with socket.create_server(("127.0.0.1", 0)) as server:
        watch = HeadWatch(f"127.0.0.1:{server.getsockname()[1]}", "resume it", clock=lambda: head.now)
        head.watch(100, watch)
    with pytest.raises(ClusterError):
        head.watch(100, watch)
