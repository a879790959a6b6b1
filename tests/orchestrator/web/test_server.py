"""Servers of this machine: ports that are taken, and names that they answer to.

Alone: .venv/bin/pytest tests/orchestrator/web/test_server.py
"""

import socket

import pytest

from orchestrator.errors import InputError
from orchestrator.web.server import listening, names_of


def test_a_port_in_use_is_refused_with_the_way_out() -> None:
    with listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"{port}.*--port"), listening("127.0.0.1", port):
            pass


def test_an_address_that_is_not_this_machines_is_refused() -> None:
    with pytest.raises(InputError, match=r"192\.0\.2\.77"), listening("192.0.2.77", 0):
        pass


def test_the_next_server_may_take_the_port_at_once() -> None:
    with listening("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
    with listening("127.0.0.1", port) as second:
        assert isinstance(second, socket.socket)


@pytest.mark.parametrize(
    ("host", "name"), [("127.0.0.2", "127.0.0.2"), ("::1", "[::1]"), ("0:0:0:0:0:0:0:1", "[0:0:0:0:0:0:0:1]")]
)
def test_a_server_of_this_machine_is_called_by_its_own_address_too(host: str, name: str) -> None:
    assert {"localhost", name} <= set(names_of(host))


def test_a_server_that_others_reach_is_called_by_any_name() -> None:
    assert names_of("0.0.0.0") == ()
