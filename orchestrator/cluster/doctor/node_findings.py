"""Findings on the nodes of a cluster: each report compared with the driver's own, each problem with its remedy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address

from orchestrator.cluster.doctor.finding import GIB, MIN_DISK_BYTES, Finding, FindingState
from orchestrator.cluster.doctor.node_report import Measured, NodeReport, NodeView, Versions

MAX_CLOCK_S = 2.0
"""Difference of two clocks from which on times in logs mislead."""
WRONG_CLOCK_S = 300.0
"""Difference from which on certificates and signed requests to object stores begin to be refused."""
MIN_BYTES_PER_S = 50e6
"""Speed below which a link is told to be slow: half of a 1 Gbit/s network's."""
FULL_DISK = 0.05
"""Free share of a disk below which Ray spills nothing to it (its `local_fs_capacity_threshold` is 0.95)."""
_GRADIENT_BYTES = 4 * 110e6
"""Bytes that workers of a BERT base exchange in each step."""


@dataclass(frozen=True)
class ExaminedNode:
    """A node and what is wrong with it."""

    view: NodeView
    findings: tuple[Finding, ...]

    @property
    def state(self) -> FindingState:
        """The worst state of its findings."""
        states = {finding.state for finding in self.findings}
        return "problem" if "problem" in states else "note" if states else "ok"


def judge(views: Sequence[NodeView], here: Versions, storage: str) -> list[ExaminedNode]:
    """Judge each node.

    Args:
        here: versions of the driver's own process.
        storage: what every node should see.
    """
    has_others = len({view.address for view in views}) > 1
    return [ExaminedNode(view, tuple(_findings(view, here, storage, has_others))) for view in views]


def _findings(view: NodeView, here: Versions, storage: str, has_others: bool) -> Iterator[Finding]:
    report, measured = view.report, view.measured
    problem, note = (partial(Finding, f"node {view.name}", state) for state in ("problem", "note"))
    if view.num_at_address > 1:
        times = view.num_at_address
        found = f"{times} Ray nodes run on this host: its CPUs and GPUs are counted {times} times"
        yield note(found, "on that host: ray stop, then ray start once")
    if report is None or measured is None:
        remedy = (
            "look whether the host is up and not overloaded; then on it: ray stop, and ray start with the cluster's "
            "--address"
        )
        if not view.raylet_answers:
            remedy += (
                f", and with --node-ip-address where the other hosts reach it at another address than {view.address}"
            )
        yield problem(view.silence, remedy)
        return
    yield from (problem(*pair) for pair in _versions(report.versions, here))
    yield from (problem(*pair) for pair in _storage(report, measured, storage))
    yield from _clock(view, measured)
    if report.token_mode != "token":
        remedy = "set RAY_AUTH_MODE=token in the ray start command of every host, as in cluster.local.yaml"
        yield note("it takes connections without a token: whoever reaches its ports can run code there", remedy)
    if report.gloo_error:
        remedy = "name an interface of that host (ip -brief address) in its ray start command"
        yield problem(report.gloo_error, f"{remedy}, then start Ray there anew")
    elif has_others and ip_address(report.gloo_address).is_loopback:
        yield problem(
            f"workers there would listen at {report.gloo_address} ({report.gloo_interface}), where no other host "
            "reaches them",
            "export GLOO_SOCKET_IFNAME=INTERFACE in that host's ray start command (ip -brief address), then start Ray "
            "there anew",
        )
    elif measured.link_problem:
        yield problem(
            f"workers there would listen at {report.gloo_address} ({report.gloo_interface}): {measured.link_problem}",
            f"export GLOO_SOCKET_IFNAME=INTERFACE, the one that has {view.address} (ip -brief address), in that host's "
            "ray start command, then start Ray there anew; let the hosts reach one another on all ports",
        )
    if measured.transfer_problem:
        yield problem(measured.transfer_problem, "let the hosts reach one another on all ports; see its free memory")
    elif measured.bytes_per_s is not None and measured.bytes_per_s < MIN_BYTES_PER_S:
        step_s = _GRADIENT_BYTES / measured.bytes_per_s
        found = f"{measured.bytes_per_s / 1e6:.0f} MB/s from the driver's node: a BERT base trained on both would wait "
        yield note(f"{found}about {step_s:.0f} s in each step", "train on one host, or use a faster network")
    is_full = report.free_disk_bytes < FULL_DISK * report.disk_bytes
    if is_full or report.free_disk_bytes < MIN_DISK_BYTES:
        found = f"{report.free_disk_bytes / GIB:.1f} GiB free where Ray spills objects"
        remedy = "free some space there, or give ray start another --temp-dir"
        yield (
            problem(f"{found}, less than {FULL_DISK:.0%} of that disk: Ray spills nothing to it", remedy)
            if is_full
            else note(found, remedy)
        )


def _versions(there: Versions, here: Versions) -> Iterator[tuple[str, str]]:
    if not there.package or not there.digest:
        yield (
            "this package is not installed there",
            "install it as on the driver (pip install -c constraints.txt -e CHECKOUT), then start Ray there anew",
        )
    elif (there.package, there.digest) != (here.package, here.digest):
        yield (
            f"it has this package in version {there.package} with sources {there.digest}, the driver has "
            f"{here.package} with {here.digest}",
            "bring the driver's checkout to that host (ray up does), then start Ray there anew",
        )
    for name in ("python", "ray", "torch"):
        found, wanted = getattr(there, name), getattr(here, name)
        # Builds for CPUs and for GPUs differ behind the plus.
        if found.partition("+")[0] != wanted.partition("+")[0]:
            yield (
                f"it has {name} {found or 'not at all'}, the driver has {wanted}",
                "install the versions of constraints.txt on both, then start Ray there anew",
            )


def _storage(report: NodeReport, measured: Measured, storage: str) -> Iterator[tuple[str, str]]:
    if not report.sees_storage:
        reason = f" ({report.storage_error})" if report.storage_error else ""
        yield (
            f"it does not see in {storage} what the driver has written there{reason}",
            "mount the shared storage there at the same path, or give a --storage that every host reaches",
        )
    elif not report.writes_storage:
        yield (
            f"it cannot write into {storage}: {report.storage_error}",
            "let the user that Ray runs as on that host write there, and look whether the storage is full",
        )
    elif not measured.marker_arrived:
        yield (
            f"the driver does not see in {storage} what that host has written there",
            "mount the same folder of the same server on both, and without a cache that delays new files",
        )


def _clock(view: NodeView, measured: Measured) -> Iterator[Finding]:
    surely_s = abs(measured.clock_s) - measured.clock_uncertainty_s
    if surely_s < MAX_CLOCK_S:
        return
    ahead = "ahead of" if measured.clock_s > 0 else "behind"
    found = f"its clock is {abs(measured.clock_s):.1f} s ± {measured.clock_uncertainty_s:.1f} s {ahead} the driver's"
    state: FindingState = "problem" if surely_s >= WRONG_CLOCK_S else "note"
    yield Finding(f"node {view.name}", state, found, "let the hosts keep time (timedatectl set-ntp true)")
