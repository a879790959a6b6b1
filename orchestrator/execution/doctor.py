"""Doctor's checks of this machine, the storage, the registry and a cluster's nodes: a finding each, with its remedy."""

import hashlib
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from orchestrator.base.console import size_text
from orchestrator.base.errors import ClusterError, OrchestratorError
from orchestrator.base.settings import Settings
from orchestrator.cluster.connection import check_reachable, connect, names_no_cluster
from orchestrator.cluster.own_errors import last_line
from orchestrator.provenance.capture import count_cores, read_memory
from orchestrator.storage import delete, join, read_bytes, write_bytes

GIB = 1 << 30
MIN_DISK_BYTES = 5 * GIB
NODE_TIMEOUT_S = 30.0
"""Time for a node to answer: a process starts there first, which takes seconds on a busy host."""
_MARKER = "driver"


@dataclass(frozen=True)
class Finding:
    """Result of the check of one part."""

    part: str
    state: Literal["ok", "note", "problem"]
    """`note`: something is limited; `problem`: something will not work."""
    found: str
    remedy: str = ""


def problem_of(part: str, error: Exception, remedy: str) -> Finding:
    """Make the problem that an error is: what ours says after its first semicolon is what to do."""
    text = " ".join(str(error).split())[:300] or type(error).__name__
    found, _, told = text.partition("; ") if isinstance(error, OrchestratorError) else (text, "", "")
    return Finding(part, "problem", found, told or remedy)


def examine(settings: Settings) -> Iterator[Finding]:
    """Check one part after the other, the cluster's address last. Ray is not started."""
    reinstall = "reinstall: rm -rf .venv, then make test"
    checks = dict.fromkeys((_libraries, _gpu, _attention, _hardware), reinstall)
    checks |= {_storage: "check the permissions, or give --storage", _registry: "give another --registry"}
    for check, remedy in (checks | {_cluster: "check that it runs (ray status)"}).items():
        try:
            yield from check(settings)
        except Exception as error:  # the other parts are checked all the same
            yield problem_of(check.__name__.strip("_"), error, remedy)


def _libraries(settings: Settings) -> Iterator[Finding]:
    yield Finding("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")
    ray = version("ray")
    is_right = ray.startswith("2.60.")
    yield Finding("ray", "ok" if is_right else "note", ray, "" if is_right else "this was built on 2.60: make check")
    import torch

    from orchestrator.cluster.torch_devices import has_bf16_cpu

    bf16 = "bf16" if has_bf16_cpu() else "no units for bf16 in this CPU, where it takes longer than fp32"
    yield Finding("torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads, {bf16}")


def _gpu(settings: Settings) -> Iterator[Finding]:
    import torch

    from orchestrator.cluster.torch_devices import find_card

    try:
        card = find_card()
    except ClusterError as error:
        reason = f"; {error}" if _has_driver() else ""
        found = f"none that torch can use: training runs on CPUs{reason}"
        yield Finding("gpu", "problem" if reason else "note", found, "fine for tiny and mini models")
        return
    free = f"{size_text(card.free_bytes)} of {size_text(card.total_bytes)} free"
    text = f"{torch.cuda.device_count()} × {card.name}, {'bf16' if card.has_bf16 else 'no bf16'}, {free}"
    yield Finding("gpu", "note", f"{text}; {card.limits}") if card.limits else Finding("gpu", "ok", text)


def _has_driver() -> bool:
    """Whether this machine has NVIDIA's driver: a card that torch cannot use is then a problem, and none without."""
    return Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None


def _attention(settings: Settings) -> Iterator[Finding]:
    """The attention backend that bf16 takes here, in training and in scoring, and why others are not taken."""
    import torch

    from bert_core.attention import BACKENDS, choose_backend
    from bert_core.attention.backend import AttentionCall

    lines = []
    for device in ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",):
        capability = torch.cuda.get_device_capability() if device == "cuda" else None
        call = AttentionCall(device, torch.bfloat16, compute_capability=capability)
        calls = {"training": replace(call, dropout_p=0.1), "scoring": call}
        chosen = ", ".join(f"{use} takes {choose_backend(call).name}" for use, call in calls.items())
        refusals = {backend.name: backend.refusal(call) for call in reversed(calls.values()) for backend in BACKENDS}
        reasons = "".join(f"; {name} {reason}" for name, reason in refusals.items() if reason)
        lines.append(f"{device}: {chosen}{reasons}")
    yield Finding("attention", "ok", ". ".join(lines))


def _hardware(settings: Settings) -> Iterator[Finding]:
    cores, memory = count_cores(), read_memory()
    shared = shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else 0
    place = next(folder for folder in (settings.home, *settings.home.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    for part, found, text, needed, remedy in (
        ("cores", cores, str(cores), 2, "data and training take turns: use a machine with two or more"),
        ("memory", memory, size_text(memory), 4 * GIB, "4 GiB are needed for the demo; expect failures"),
        (
            "shared memory",
            shared,
            f"{size_text(shared)} free in /dev/shm, for Ray",
            GIB,
            "docker run --shm-size=4g",
        ),
        ("disk", free, f"{size_text(free)} free at {place}", MIN_DISK_BYTES, "free some space, or give another --home"),
    ):
        yield Finding(part, "ok", text) if found >= needed else Finding(part, "note", text, remedy)


def _storage(settings: Settings) -> Iterator[Finding]:
    path = join(settings.storage, f".doctor-{uuid4().hex[:8]}")
    write_bytes(path, b"fit")
    if read_bytes(path) != b"fit":
        raise OSError(f"{settings.storage} does not give back what was written")
    delete(path)
    yield Finding("storage", "ok", f"{settings.storage} can be written")


def _registry(settings: Settings) -> Iterator[Finding]:
    from orchestrator.registry import Registry

    with Registry(settings.registry, read_only=True) as registry:
        revision = registry.current_revision()
        if revision is not None:
            registry.run_table(limit=1)
        state = "empty; the first run makes its tables" if revision is None else f"revision {revision}"
        yield Finding("registry", "ok", f"{registry.place}: {state}")


def _cluster(settings: Settings) -> Iterator[Finding]:
    if not names_no_cluster(settings):
        check_reachable(str(settings.address))
    yield Finding("cluster", "ok", f"at {settings.address}" if settings.address else "none named")


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
        text = f"{size_text(report['free_disk_bytes'])} free where Ray spills objects"
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
