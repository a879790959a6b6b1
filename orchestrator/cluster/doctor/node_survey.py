"""Survey of the connected Ray's nodes: a probe on each, all asked at once, so that a dead one holds up no other.

A probe takes no CPU, so a busy cluster is looked at as it is. Clocks and transfers are measured one node after another,
since they would share a link.
"""

import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any
from uuid import uuid4

import ray
import ray.cloudpickle
from ray._private.state import available_resources_per_node
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.cluster.doctor import node_probe
from orchestrator.cluster.doctor.node_probe import NodeProbe
from orchestrator.cluster.doctor.node_report import Measured, NodeReport, NodeView
from orchestrator.errors import last_line
from orchestrator.storage import delete, join, read_bytes, write_bytes

NODE_TIMEOUT_S = 30.0
"""Time within which a node must answer: a process starts there first, which takes seconds on a busy host."""
TRANSFER_BYTES = 64 << 20
_PINGS = 5
_MARKER = "driver"
_CONNECT_TIMEOUT_S = 2.0


@dataclass
class _Asked:
    """A node whose probe was asked."""

    view: NodeView
    raylet: tuple[str, int]
    probe: Any
    answer: Any


def survey(storage: str, timeout_s: float = NODE_TIMEOUT_S) -> list[NodeView]:
    """Look at each living node; the driver's own comes first, the others follow by address.

    Args:
        storage: what every node should see.
        timeout_s: time within which a node must answer, and again for each measurement.
    """
    with _marked(storage) as folder, _by_value():
        asked = [_ask(view, raylet, folder) for view, raylet in _living_nodes()]
        try:
            ray.wait([one.answer for one in asked], num_returns=len(asked), timeout=timeout_s)
            views = [_take_answer(one, timeout_s) for one in asked]
            sent = bytes(TRANSFER_BYTES)
            measured = [
                _measure(one.probe, view, folder, sent, timeout_s) for one, view in zip(asked, views, strict=True)
            ]
            return _with_links([one.probe for one in asked], measured, timeout_s)
        finally:
            for one in asked:
                ray.kill(one.probe)


def _living_nodes() -> Iterator[tuple[NodeView, tuple[str, int]]]:
    here, free = ray.get_runtime_context().get_node_id(), available_resources_per_node()
    living = [node for node in ray.nodes() if node["Alive"]]
    num_at = Counter(node["NodeManagerAddress"] for node in living)
    for node in sorted(living, key=lambda node: (node["NodeID"] != here, node["NodeManagerAddress"])):
        node_id, address = node["NodeID"], node["NodeManagerAddress"]
        resources = dict(node["Resources"]), dict(free.get(node_id, {}))
        view = NodeView(node_id, address, node_id == here, *resources, num_at_address=num_at[address])
        yield view, (address, node["NodeManagerPort"])


@contextmanager
def _marked(storage: str) -> Iterator[str]:
    """Leave the driver's marker in a folder of its own on the storage during the block; yields the folder.

    Where the driver cannot write, no node sees a marker; the check of this machine's storage says why.
    """
    folder = join(storage, f".doctor-{uuid4().hex[:8]}")
    with suppress(Exception):  # each file system has errors of its own
        write_bytes(join(folder, _MARKER), _MARKER.encode())
    try:
        yield folder
    finally:
        with suppress(Exception):
            delete(folder)


@contextmanager
def _by_value() -> Iterator[None]:
    """Let the probe travel as code: a node may lack this package, or have another version of it."""
    ray.cloudpickle.register_pickle_by_value(node_probe)
    try:
        yield
    finally:
        ray.cloudpickle.unregister_pickle_by_value(node_probe)


def _ask(view: NodeView, raylet: tuple[str, int], folder: str) -> _Asked:
    there = NodeAffinitySchedulingStrategy(view.node_id, soft=False)
    probe = ray.remote(num_cpus=0)(NodeProbe).options(scheduling_strategy=there).remote()
    return _Asked(view, raylet, probe, probe.look.remote(folder, _MARKER, view.node_id))


def _take_answer(asked: _Asked, timeout_s: float) -> NodeView:
    """Add a probe's report to the view of its node, or what is known of its silence."""
    try:
        values = ray.get(asked.answer, timeout=0)
    except ray.exceptions.GetTimeoutError:
        answers, state = _raylet_state(*asked.raylet)
        return replace(asked.view, silence=f"no answer within {timeout_s:g} s; {state}", raylet_answers=answers)
    except ray.exceptions.RayError as error:
        return replace(asked.view, silence=f"its process failed: {last_line(error)}")
    return replace(asked.view, report=NodeReport.from_values(values))


def _raylet_state(address: str, port: int) -> tuple[bool, str]:
    try:
        socket.create_connection((address, port), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return False, f"its raylet cannot be reached at {address}:{port} ({error.strerror or error})"
    return True, f"its raylet answers at {address}:{port}, but has started no process in that time"


def _measure(probe: Any, view: NodeView, folder: str, sent: bytes, timeout_s: float) -> NodeView:
    """Add what is measured between the driver and a node that has answered."""
    if view.report is None:
        return view
    try:
        clock_s, uncertainty_s = best_clock(list(_pings(probe, timeout_s)))
    except ray.exceptions.RayError as error:
        return replace(view, report=None, silence=f"it answered once, and then failed: {last_line(error)}")
    measured = Measured(clock_s, uncertainty_s, marker_arrived=_has_arrived(folder, view.node_id))
    if view.is_drivers:
        return replace(view, measured=measured)
    try:
        bytes_per_s = len(sent) / ray.get(probe.receive.remote([ray.put(sent)]), timeout=timeout_s)
    except ray.exceptions.RayError as error:
        late = isinstance(error, ray.exceptions.GetTimeoutError)
        reason = f"within {timeout_s:g} s" if late else f"({last_line(error)})"
        problem = f"{len(sent) >> 20} MiB from the driver's node did not arrive there {reason}"
        return replace(view, measured=replace(measured, transfer_problem=problem))
    return replace(view, measured=replace(measured, bytes_per_s=bytes_per_s))


def _with_links(probes: Sequence[Any], views: Sequence[NodeView], timeout_s: float) -> list[NodeView]:
    """Add whether each node's workers would be reached: each is called by the next node, the last one by the first.

    A host may have addresses that no other host reaches, or that another host has too (`docker0`).
    """
    answering = [pair for pair in zip(probes, views, strict=True) if pair[1].measured]
    callers = answering[1:] + answering[:1]
    problems = {
        view.node_id: _link_problem(probe, view, caller, timeout_s)
        for (probe, view), caller in zip(answering, callers, strict=True)
    }
    return [
        replace(view, measured=replace(view.measured, link_problem=problems[view.node_id])) if view.measured else view
        for view in views
    ]


def _link_problem(probe: Any, view: NodeView, caller: tuple[Any, NodeView], timeout_s: float) -> str:
    """Reason why workers of one node would not be reached from another one; empty where they are, or need not be."""
    calling, calling_view = caller
    assert view.report is not None
    address = view.report.gloo_address
    if calling_view is view or not address or ip_address(address).is_loopback:
        return ""
    try:
        port = ray.get(probe.listen.remote(address, view.node_id), timeout=timeout_s)
        name, error = ray.get(calling.call.remote(address, port, _CONNECT_TIMEOUT_S), timeout=timeout_s)
    except ray.exceptions.RayError as failure:
        name, error = "", last_line(failure)
    if name == view.node_id:
        return ""
    return f"{calling_view.address} does not reach them there ({error or 'another host answers'})"


def _pings(probe: Any, timeout_s: float) -> Iterator[tuple[float, float, float]]:
    """Yield the driver's time before a question, the node's time, and the driver's time after the answer."""
    for _ in range(_PINGS):
        before = time.time()
        there = ray.get(probe.clock.remote(), timeout=timeout_s)
        yield before, there, time.time()


def best_clock(pings: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Return by how much a clock is ahead, and the uncertainty of that, from the shortest round trip.

    The node's clock was read at some moment between question and answer (Cristian 1989): the middle is at most half the
    round trip wrong.
    """
    before, there, after = min(pings, key=lambda ping: ping[2] - ping[0])
    return there - (before + after) / 2, (after - before) / 2


def _has_arrived(folder: str, marker: str) -> bool:
    try:
        return read_bytes(join(folder, marker)) == marker.encode()
    except Exception:  # each file system has errors of its own
        return False
