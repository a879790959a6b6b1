"""The machine and the versions that a process works with, read in milliseconds: no library is loaded for it.

A driver's runs are made with them, its code and its command: one value, captured when its session is opened.

Versions come from the files that were installed, the GPUs from what their driver tells in `/proc`, or from
`nvidia-smi` where there is no such thing.
"""

import getpass
import logging
import os
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from bert_core import __version__
from orchestrator.provenance.secret_masking import mask_secrets, mask_words
from orchestrator.provenance.source_code import SourceCode, read_source_code

T = TypeVar("T")

_DISTRIBUTIONS = ("torch", "ray", "tokenizers", "numpy", "safetensors", "pyarrow", "optuna")
_PROGRAM_PATIENCE_S = 2.0
_CUDA_OF_TORCH = re.compile(r"^cuda\b[^=]*=\s*['\"]([\d.]+)['\"]", re.MULTILINE)
_DRIVER_VERSION = re.compile(r"(?:Module(?: for \S+)?|NVRM version:.*?)\s+(\d+\.\d+(?:\.\d+)?)\s")


@dataclass(frozen=True)
class Machine:
    """Machine of a process, with the versions that are installed on it; None where something is not known."""

    hostname: str | None = None
    user: str | None = None
    platform: str | None = None
    processor: str | None = None
    """Model name of the processor."""
    num_cores: int | None = None
    """Number of cores that this process may use."""
    memory_bytes: int | None = None
    """Size of the memory, or of the container's part of it."""
    gpus: tuple[str, ...] = ()
    """Model name of each GPU of the machine."""
    gpu_driver: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of Python, of this package and of what decides its numbers; `cuda` is what torch was built for."""


def read_machine(root: Path = Path("/")) -> Machine:
    """Read the machine that this process is on; what cannot be read is left out.

    Args:
        root: folder below which `proc` and `sys` lie.
    """
    gpus, driver = _or_none(lambda: _read_gpus(root)) or ((), None)
    return Machine(
        hostname=_or_none(socket.gethostname),
        user=_or_none(getpass.getuser),
        platform=_or_none(platform.platform),
        processor=_or_none(lambda: _read_processor(root)),
        num_cores=_or_none(_count_cores),
        memory_bytes=_or_none(lambda: _read_memory(root)),
        gpus=gpus,
        gpu_driver=driver,
        versions=_or_none(installed_versions) or {},
    )


def installed_versions() -> dict[str, str]:
    """Return the versions of Python, this package, the libraries that decide numbers, and CUDA; by name."""
    found = {"python": platform.python_version(), "bert-orchestrator": __version__}
    for name in _DISTRIBUTIONS:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    cuda = _or_none(_read_cuda)
    return found | ({"cuda": cuda} if cuda else {})


def _or_none(read: Callable[[], T]) -> T | None:
    """Return what a function reads, None where it raises: no run ends because its machine says something unheard-of."""
    try:
        return read()
    except Exception:
        return None


def _read_cuda() -> str | None:
    """Version of CUDA that torch was built for, from a file of torch: loading torch takes seconds."""
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        return None
    found = _CUDA_OF_TORCH.search(Path(torch.origin).with_name("version.py").read_text(encoding="utf-8"))
    return found[1] if found else None


def _read_processor(root: Path) -> str | None:
    if sys.platform == "darwin":
        return _ask("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def _count_cores() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _read_memory(root: Path) -> int:
    """Size in bytes of the memory, or of the container's part of it."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            return min(whole, int((root / name).read_text(encoding="ascii")))
    return whole


def _read_gpus(root: Path) -> tuple[tuple[str, ...], str | None]:
    """Model names of the NVIDIA GPUs, and the version of their driver."""
    told = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    models = [re.search(r"^Model:\s*(.+)$", path.read_text(encoding="utf-8"), re.MULTILINE) for path in told]
    names = tuple(model[1].strip() for model in models if model)
    driver = None
    with suppress(OSError):
        found = _DRIVER_VERSION.search((root / "proc/driver/nvidia/version").read_text(encoding="utf-8"))
        driver = found[1] if found else None
    if not names or driver is None:
        rows = [line.split(", ") for line in _ask("nvidia-smi", *_SMI_QUESTION).splitlines() if ", " in line]
        names, driver = names or tuple(row[0] for row in rows), driver or (rows[0][1] if rows else None)
    return names, driver


_SMI_QUESTION = ("--query-gpu=name,driver_version", "--format=csv,noheader")


def _ask(program: str, *words: str) -> str:
    """Return what a program prints within its time; nothing where there is no such program, or it fails."""
    path = shutil.which(program)
    if path is None:
        return ""
    with suppress(subprocess.SubprocessError, OSError):
        done = subprocess.run(
            [path, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROGRAM_PATIENCE_S,
            check=True,
        )
        return done.stdout.strip()
    return ""


@dataclass(frozen=True)
class MadeWith:
    """Code, command and machine of one driver; captured once, when its session is opened."""

    code: SourceCode
    command: str | None = None
    """Command line as it was typed, secrets masked; that of a notebook's server where it was a notebook."""
    overrides: Sequence[str] = ()
    """KEY=VALUE words as they were typed, secrets masked."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """Versions and machine as plain values (`Machine`)."""


logger = logging.getLogger(__name__)

_PROGRAM = "orchestrator"
_MAX_COMMAND_CHARS = 8_000


def capture(overrides: Sequence[str] = ()) -> MadeWith:
    """Capture code, command and machine of this process; takes a fraction of a second, and never raises.

    Args:
        overrides: KEY=VALUE words as they were typed.
    """
    try:
        return MadeWith(
            read_source_code(),
            command_line(sys.orig_argv),
            tuple(mask_words(overrides)),
            asdict(read_machine()),
        )
    except Exception as error:  # a run is worth more than the record of its machine
        logger.debug("what this run is made with cannot be told", exc_info=True)
        return MadeWith(SourceCode(__version__, reason=f"could not be captured: {mask_secrets(str(error))[:200]}"))


def command_line(words: Sequence[str]) -> str:
    """Return the words of a process as a person would type them, secrets masked; of very many, the first ones.

    >>> command_line(["/lab/.venv/bin/python3", "/lab/.venv/bin/orchestrator", "run", "a b.yaml", "--token", "x"])
    "orchestrator run 'a b.yaml' --token '***'"
    >>> command_line(["/usr/bin/python3", "-m", "orchestrator.cli", "demo"])
    'python3 -m orchestrator.cli demo'
    """
    program, *rest = words or [_PROGRAM]
    if rest and Path(rest[0]).name == _PROGRAM:
        program, *rest = rest
    text = shlex.join([Path(program).name, *mask_words(rest)])
    return text if len(text) <= _MAX_COMMAND_CHARS else text[:_MAX_COMMAND_CHARS] + "…"
