"""Survey of a cluster's nodes: each looks at itself in a task that takes no CPU, and is compared with the driver."""

import hashlib
import importlib.util
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from uuid import uuid4

from orchestrator.cluster.connection import connect
from orchestrator.cluster.doctor import GIB, MIN_DISK_BYTES, Finding
from orchestrator.errors import last_line
from orchestrator.settings import Settings
from orchestrator.storage import delete, join, write_bytes

NODE_TIMEOUT_S = 30.0
"""Time within which a node must answer: a process starts there first, which takes seconds on a busy host."""
_MARKER = "driver"


def survey_nodes(settings: Settings, timeout_s: float = NODE_TIMEOUT_S) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Look at each living node of the cluster at `settings.address`: a row for each, and what is wrong with any.

    Raises: ClusterError where the cluster cannot be reached or refuses.
    """
    with connect(settings):
        import ray
        from ray.autoscaler.v2.sdk import get_cluster_status
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = ray.get_runtime_context()
        status = get_cluster_status(here.gcs_address)
        nodes = sorted((*status.active_nodes, *status.idle_nodes), key=lambda one: one.node_id != here.get_node_id())
        folder = join(settings.storage, f".doctor-{uuid4().hex[:8]}")
        _error_of(lambda: write_bytes(join(folder, _MARKER), _MARKER.encode()))  # said by the check of this machine
        module = importlib.import_module(__name__)
        ray.cloudpickle.register_pickle_by_value(module)  # a node may lack this package, or have another version of it
        task = ray.remote(num_cpus=0, max_retries=0)(look)
        places = [NodeAffinitySchedulingStrategy(node.node_id, soft=False) for node in nodes]
        asked = [task.options(scheduling_strategy=place).remote(folder, place.node_id) for place in places]
        try:
            ray.wait(asked, num_returns=len(asked), timeout=timeout_s)
            reports = [_report(one, timeout_s) for one in asked]
        finally:
            ray.cloudpickle.unregister_pickle_by_value(module)
            _error_of(lambda: delete(folder))
    findings = [
        finding
        for node, report in zip(nodes, reports, strict=True)
        for finding in judge(f"node {node.ip_address}", report, versions(), settings.storage)
    ]
    return [_row(node, report) for node, report in zip(nodes, reports, strict=True)], findings


def _row(node: Any, report: Mapping[str, Any]) -> dict[str, Any]:
    free, total, row = node.available_resources(), node.total_resources(), {"node": node.ip_address}
    row |= {name.lower(): f"{free.get(name, 0.0):g}/{total.get(name, 0.0):g}" for name in ("CPU", "GPU")}
    if "silence" in report:
        return row
    free_memory, memory, disk = (report[f"{name}_bytes"] >> 30 for name in ("free_memory", "memory", "free_disk"))
    return row | {"memory": f"{free_memory}/{memory}G", "disk": f"{disk}G", **report}


def _report(asked: Any, timeout_s: float) -> dict[str, Any]:
    import ray

    try:
        return dict(ray.get(asked, timeout=0))
    except ray.exceptions.GetTimeoutError:
        return {"silence": f"no answer within {timeout_s:g} s"}
    except ray.exceptions.RayError as error:
        return {"silence": f"its process failed: {last_line(error)}"}


def judge(part: str, report: Mapping[str, Any], here: Mapping[str, str], storage: str) -> Iterator[Finding]:
    """Yield what is wrong with a node, by its report and the versions of the driver's own process."""
    if "silence" in report:
        remedy = "look whether the host is up and not overloaded; then on it: ray stop, and its `ray start` again"
        yield Finding(part, "problem", report["silence"], remedy)
        return
    for name, wanted in here.items():
        found = report["versions"][name]
        if found.partition("+")[0] != wanted.partition("+")[0]:  # behind it builds for CPUs and for GPUs differ
            text = f"{name} is {found or 'not installed'} there; the driver has {wanted}"
            remedy = "bring the driver's checkout to that host (ray up does), install constraints.txt, start Ray anew"
            yield Finding(part, "problem", text, remedy)
    if report["storage_error"]:
        remedy = "mount the shared storage there at the same path, writable, or give a --storage that all reach"
        yield Finding(part, "problem", f"{storage} there: {report['storage_error']}", remedy)
    if not report["asks_for_token"]:
        text = "it takes connections without a token: who reaches its ports runs code"
        yield Finding(part, "note", text, "set RAY_AUTH_MODE=token before ray start, as in cluster.local.yaml")
    if report["free_disk_bytes"] < MIN_DISK_BYTES:
        text = f"{report['free_disk_bytes'] / GIB:.1f} GiB free where Ray spills objects"
        yield Finding(part, "note", text, "free some space there, or give ray start another --temp-dir")


def look(folder: str, own_marker: str) -> dict[str, Any]:
    """Look at the node that this runs on: plain values, where the driver's marker is read, and one written."""
    import psutil
    import ray

    def see_storage() -> None:
        from orchestrator.storage import exists, join, read_bytes, write_bytes

        path = join(folder, _MARKER)
        if not exists(path) or read_bytes(path) != _MARKER.encode():
            raise FileNotFoundError("what the driver has written is not seen")
        write_bytes(join(folder, own_marker), b"")

    memory = psutil.virtual_memory()
    return {
        "versions": versions(),
        "asks_for_token": os.environ.get("RAY_AUTH_MODE") == "token",
        "storage_error": _error_of(see_storage),
        "free_memory_bytes": memory.available,
        "memory_bytes": memory.total,
        "free_disk_bytes": shutil.disk_usage(ray.get_runtime_context().get_temp_dir()).free,
    }


def versions() -> dict[str, str]:
    """Versions of what decides a run, and a digest of our own sources; empty where it is not installed."""
    installed = {found.metadata["Name"]: found.version for found in distributions()}
    digest = hashlib.sha256()
    for package in ("bert_core", "orchestrator"):
        found = importlib.util.find_spec(package)
        for path in sorted(Path(found.origin).parent.rglob("*.py")) if found and found.origin else ():
            digest.update(hashlib.sha256(f"{path.name}\0".encode() + path.read_bytes()).digest())
    found_here = {name: installed.get(name, "") for name in ("ray", "torch")}
    return {"python": platform.python_version(), **found_here, "sources": digest.hexdigest()[:12]}


def _error_of(work: Callable[[], object]) -> str:
    """The error that some work raises, in one line; empty where it goes well."""
    try:
        work()
    except Exception as error:  # each file system has errors of its own, and the package may be another version
        return " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return ""
