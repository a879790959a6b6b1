"""Checks of this machine, the storage and the registry: one finding per part, each problem with its remedy."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from uuid import uuid4

from orchestrator.cluster.addresses import check_reachable, names_no_cluster
from orchestrator.cluster.doctor.finding import GIB, MIN_DISK_BYTES, Finding, problem_of
from orchestrator.errors import ClusterError, OrchestratorError
from orchestrator.settings import Settings
from orchestrator.storage import delete, join, read_bytes, write_bytes

MIN_MEMORY_BYTES = 4 * GIB
MIN_SHARED_MEMORY_BYTES = 1 * GIB


def examine(settings: Settings) -> Iterator[Finding]:
    """Check one part after the other. Ray is not started."""
    checks: list[Callable[[Settings], Finding]] = [
        _python,
        _torch,
        _gpu,
        _attention,
        _ray,
        _cores,
        _memory,
        _shared_memory,
        _disk,
        _storage,
        _registry,
        _cluster,
    ]
    for check in checks:
        try:
            yield check(settings)
        except OrchestratorError as error:
            yield problem_of(check.__name__.strip("_"), error)
        except Exception as error:  # the other parts are checked all the same
            text = " ".join(f"{type(error).__name__}: {error}".split())
            yield Finding(check.__name__.strip("_"), "problem", text[:300], "reinstall: rm -rf .venv, then make test")


def _python(settings: Settings) -> Finding:
    return Finding("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")


def _torch(settings: Settings) -> Finding:
    import torch

    from orchestrator.training.cards import has_bf16_cpu

    bf16 = "bf16" if has_bf16_cpu() else "no units for bf16 in this CPU, where it takes longer than fp32"
    return Finding("torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads, {bf16}")


def _gpu(settings: Settings) -> Finding:
    import torch

    from orchestrator.training.cards import card_notes, find_card, has_bf16

    try:
        card = find_card()
    except ClusterError as error:
        reason = f"; {error}" if _has_driver() else ""
        found = f"none that torch can use: training runs on CPUs{reason}"
        return Finding("gpu", "problem" if reason else "note", found, "fine for tiny and mini models")
    text = f"{torch.cuda.device_count()} × {card.name}, {'bf16' if has_bf16(card) else 'no bf16: precision fp32'}"
    notes = card_notes("cuda")
    return Finding("gpu", "note" if notes else "ok", "; ".join([text, *notes]))


def _has_driver() -> bool:
    """Whether this machine has NVIDIA's driver: a card that torch cannot use is then a problem, and none without."""
    return Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None


def _attention(settings: Settings) -> Finding:
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
    return Finding("attention", "ok", ". ".join(lines))


def _ray(settings: Settings) -> Finding:
    try:
        found = version("ray")
    except PackageNotFoundError:
        return Finding(
            "ray", "problem", "not installed", 'pip install -c constraints.txt "ray[default,data,train,tune]"'
        )
    if not found.startswith("2.60."):
        return Finding("ray", "note", f"{found}; this was built on 2.60", "pip install -c constraints.txt ray")
    return Finding("ray", "ok", found)


def _cores(settings: Settings) -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if usable < 2:
        return Finding("cores", "note", f"{usable}: data and training take turns", "use a machine with two or more")
    return Finding("cores", "ok", str(usable))


def _memory(settings: Settings) -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _cgroup_limit()
    found = min(total, limit) if limit else total
    text = f"{found / GIB:.1f} GiB" + (" (the container's limit)" if limit and limit < total else "")
    if found < MIN_MEMORY_BYTES:
        return Finding(
            "memory", "note", text, f"{MIN_MEMORY_BYTES / GIB:.0f} GiB are needed for the demo; expect failures"
        )
    return Finding("memory", "ok", text)


def _cgroup_limit() -> int | None:
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        path = Path(name)
        if path.is_file() and (text := path.read_text().strip()).isdecimal():
            return int(text)
    return None


def _shared_memory(settings: Settings) -> Finding:
    path = Path("/dev/shm")
    if not path.is_dir():
        return Finding("shared memory", "note", "no /dev/shm: Ray keeps objects on disk, slowly", "mount a tmpfs there")
    free = shutil.disk_usage(path).free
    text = f"{free / GIB:.1f} GiB free in {path}"
    if free < MIN_SHARED_MEMORY_BYTES:
        return Finding("shared memory", "note", f"{text}: Ray is slow with so little", "docker run --shm-size=4g")
    return Finding("shared memory", "ok", text)


def _disk(settings: Settings) -> Finding:
    place = next(folder for folder in (settings.home, *settings.home.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    text = f"{free / GIB:.1f} GiB free at {place}"
    if free < MIN_DISK_BYTES:
        return Finding("disk", "note", text, "free some space, or give another --home")
    return Finding("disk", "ok", text)


def _storage(settings: Settings) -> Finding:
    path = join(settings.storage, f".doctor-{uuid4().hex[:8]}")
    try:
        write_bytes(path, b"fit")
        same = read_bytes(path) == b"fit"
        delete(path)
    except Exception as error:  # each file system has errors of its own
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        return Finding(
            "storage", "problem", f"{settings.storage}: {reason}", "check the permissions, or give --storage"
        )
    if not same:
        return Finding(
            "storage", "problem", f"{settings.storage} does not give back what was written", "give --storage"
        )
    return Finding("storage", "ok", f"{settings.storage} can be written")


def _registry(settings: Settings) -> Finding:
    from orchestrator.registry import Registry

    with Registry(settings.registry, read_only=True) as registry:
        try:
            revision = registry.current_revision()
        except OrchestratorError as error:
            return problem_of("registry", error, "or give another --registry")
        if revision is None:
            return Finding("registry", "ok", f"{registry.place}: empty; the first run makes its tables")
        registry.run_table(limit=1)
        return Finding("registry", "ok", f"{registry.place}: revision {revision}")


def _cluster(settings: Settings) -> Finding:
    if names_no_cluster(settings):
        return Finding("cluster", "ok", "none named: a local Ray is started for each command")
    assert settings.address is not None
    check_reachable(settings.address)
    return Finding("cluster", "ok", f"something listens at {settings.address}")
