"""Doctor's checks of this machine, the storage and the registry: one finding per part, each problem with its remedy."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal
from uuid import uuid4

from orchestrator.cluster.addresses import check_reachable, names_no_cluster
from orchestrator.errors import ClusterError, OrchestratorError
from orchestrator.settings import Settings
from orchestrator.storage import delete, join, read_bytes, write_bytes

GIB = 1 << 30
MIN_DISK_BYTES = 5 * GIB


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

    from orchestrator.training.cards import has_bf16_cpu

    bf16 = "bf16" if has_bf16_cpu() else "no units for bf16 in this CPU, where it takes longer than fp32"
    yield Finding("torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads, {bf16}")


def _gpu(settings: Settings) -> Iterator[Finding]:
    import torch

    from orchestrator.training.cards import card_notes, find_card, has_bf16

    try:
        card = find_card()
    except ClusterError as error:
        reason = f"; {error}" if _has_driver() else ""
        found = f"none that torch can use: training runs on CPUs{reason}"
        yield Finding("gpu", "problem" if reason else "note", found, "fine for tiny and mini models")
        return
    text = f"{torch.cuda.device_count()} × {card.name}, {'bf16' if has_bf16(card) else 'no bf16: precision fp32'}"
    notes = card_notes("cuda")
    yield Finding("gpu", "note" if notes else "ok", "; ".join([text, *notes]))


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
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield _amount("cores", cores, str(cores), 2, "data and training take turns: use a machine with two or more")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # of a container
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    text = f"{memory / GIB:.1f} GiB"
    yield _amount("memory", memory, text, 4 * GIB, "4 GiB are needed for the demo; expect failures")
    shared = shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else 0
    text = f"{shared / GIB:.1f} GiB free in /dev/shm, where Ray keeps objects"
    yield _amount("shared memory", shared, text, GIB, "docker run --shm-size=4g")
    place = next(folder for folder in (settings.home, *settings.home.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    text = f"{free / GIB:.1f} GiB free at {place}"
    yield _amount("disk", free, text, MIN_DISK_BYTES, "free some space, or give another --home")


def _amount(part: str, found: int, text: str, needed: int, remedy: str) -> Finding:
    return Finding(part, "ok", text) if found >= needed else Finding(part, "note", text, remedy)


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
